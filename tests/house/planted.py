"""Checkouts that tests plant, to see what a check finds in them."""

import pathlib
import tempfile
import unittest


def write(root, files):
    """`files`: path -> text."""
    for path, text in files.items():
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


class PlantedTest(unittest.TestCase):
    def planted(self, files):
        """The root of a checkout of these files."""
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        write(root, files)
        return root

    def assert_one(self, words, found):
        self.assertEqual(len(found), 1, f"{words}: {found}")
        self.assertIn(words, found[0])
