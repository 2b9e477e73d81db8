"""src holds six houses, and the library's house is what links into libcommpool.so.

usage: street_test.py SOURCES      labels of the sources of libcommpool.so, one a line
"""

import pathlib
import sys
import unittest

import tree

LABELS = pathlib.Path(sys.argv.pop()).read_text(encoding="utf-8").split()
HOUSES = {"emulator", "interpose", "library", "python", "report", "torch"}
_LIBRARY = "src/library/"
_SOURCES = {".c", ".cc", ".h", ".inc", ".lds"}


class Street(unittest.TestCase):

    def test_src_holds_six_houses(self):
        folders = {path.parts[1] for path in tree.files(tree.workspace()) if path.parts[0] == "src" and path.parts[2:]}
        self.assertEqual(folders, HOUSES)

    def test_the_librarys_house_is_what_links_into_the_library(self):
        linked = {label.removeprefix("//").replace(":", "/") for label in LABELS}
        lie_there = {str(path) for path in tree.files(tree.workspace())
                     if str(path).startswith(_LIBRARY) and path.suffix in _SOURCES}
        self.assertGreater(len(linked), 250)
        self.assertEqual(sorted(linked - lie_there), [], "linked from elsewhere")
        self.assertEqual(sorted(lie_there - linked), [], "there, and not linked")
