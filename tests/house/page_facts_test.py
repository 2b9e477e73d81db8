"""Planted pages: names that no source has, and numbers that a source has otherwise, are found."""

import pathlib
import tempfile
import unittest

import page_facts


class PageFacts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, **files):
        for name, text in files.items():
            (self.root / name.replace("_", ".")).write_text(text, encoding="utf-8")

    def test_names_that_a_source_has_are_fine(self):
        self.write(pool_h="commpool_pool_trim(); COMMPOOL_RECORD", page_md="`commpool_pool_trim` and `COMMPOOL_RECORD`")
        self.assertEqual(page_facts.unknown_names(self.root), [])

    def test_names_that_no_source_has_are_found(self):
        self.write(pool_h="commpool_pool_trim()", page_md="`commpool_pool_gone`, and an [anchor](a.md#commpool_away)")
        self.assertEqual(page_facts.unknown_names(self.root), ["page.md: nothing is called commpool_pool_gone"])

    def test_numbers_that_the_source_has_otherwise_are_found(self):
        self.write(pool_h="constexpr int kMost = 256;", page_md="at most 256 pools; at most 128 pools")
        numbers = (("page.md", r"at most (\d+)", "pool.h", r"kMost = (\d+)"),)
        self.assertEqual(page_facts.other_numbers(self.root, numbers), ["page.md: 128 is 256 in pool.h"])

    def test_programs_that_no_test_runs_are_found(self):
        (self.root / "tests").mkdir()
        (self.root / "tests/page_test.py").write_text('run("pool = made()")', encoding="utf-8")
        self.write(page_md="```python\npool = made()  # by hand\n```\n```python\npool = found()\n```\n")
        self.assertEqual(page_facts.unrun_programs(self.root),
                         ["page.md: no test runs the program that begins with pool = found()"])


if __name__ == "__main__":
    unittest.main()
