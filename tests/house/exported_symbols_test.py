"""libcommpool.so exports the C ABI alone, each function under its version, and is linked with no CUDA and no NCCL."""

import pathlib
import sys
import unittest

import abi
import symbols

LIBRARY, HEADER, KEPT = sys.argv[1], sys.argv[2], sys.argv[3:]


def functions_by_version(headers):
    """The node of each version -> the functions that came with it."""
    seen, found = set(), {}
    for each in sorted(map(abi.Abi, headers), key=lambda one: one.version):
        found.setdefault(f"COMMPOOL_{each.version[0]}.{each.version[1]}", set()).update(set(each.functions) - seen)
        seen |= set(each.functions)
    return found


class ExportedSymbols(unittest.TestCase):

    def setUp(self):
        self.nm = symbols.output_of("nm", "--dynamic", "--defined-only", LIBRARY)
        self.readelf = symbols.output_of("readelf", "--dynamic", "--wide", LIBRARY)
        self.header = pathlib.Path(HEADER).read_text()

    def test_the_library_exports_the_functions_of_commpool_h_alone(self):
        found = symbols.problems(symbols.exported(self.nm), symbols.needed(self.readelf),
                                 symbols.declared(self.header))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_each_function_has_the_version_that_it_came_with(self):
        headers = [pathlib.Path(path).read_text() for path in KEPT] + [self.header]
        found = list(symbols.version_problems(symbols.versions(self.nm), {**functions_by_version(headers),
                                                                            **symbols.OF_ADAPTERS_BY_VERSION}))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_programs_load_it_by_its_major_version(self):
        major = abi.Abi(self.header).version[0]
        self.assertEqual(symbols.shared_name(self.readelf), f"libcommpool.so.{major}")

    def test_the_surface_stays_small(self):
        self.assertLessEqual(len(symbols.declared(self.header)), 55)
        self.assertLessEqual(len(self.header.splitlines()), 500)
