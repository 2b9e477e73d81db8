"""commpool.h is, to programs, the header of its minor version that tests/data/abi keeps."""

import pathlib
import sys
import unittest

import abi

HEADER, KEPT = sys.argv[1:]


class KeptAbi(unittest.TestCase):

    def test_commpool_h_serves_the_programs_of_its_minor_version(self):
        found = abi.problems(pathlib.Path(KEPT).read_text(), pathlib.Path(HEADER).read_text())
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_the_parser_sees_what_the_header_has(self):
        today = abi.Abi(pathlib.Path(HEADER).read_text())
        self.assertIn("commpool_pools_create", today.functions)
        self.assertEqual(today.structs["commpool_statistics"][0], "size_t struct_bytes")
        self.assertEqual(today.enums["commpool_status"]["COMMPOOL_EXHAUSTED"], 3)
        self.assertIn("uint64_t commpool_scope", today.types)
