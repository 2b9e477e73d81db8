"""libcommpool.so exports the C ABI alone and is linked with no CUDA and no NCCL."""

import pathlib
import sys
import unittest

import symbols

LIBRARY, HEADER = sys.argv[1:3]


class ExportedSymbols(unittest.TestCase):

    def test_the_library_exports_the_functions_of_commpool_h_alone(self):
        found = symbols.problems(symbols.exported(symbols.output_of("nm", "--dynamic", "--defined-only", LIBRARY)),
                                 symbols.needed(symbols.output_of("readelf", "--dynamic", "--wide", LIBRARY)),
                                 symbols.declared(pathlib.Path(HEADER).read_text()))
        self.assertFalse(found, "\n" + "\n".join(found))
