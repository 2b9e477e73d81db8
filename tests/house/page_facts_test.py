"""Planted pages: names that no source has, and numbers that a source has otherwise, are found."""

import page_facts
import planted


class PageFacts(planted.PlantedTest):
    def of(self, header, page):
        return self.planted({"pool.h": header, "page.md": page})

    def test_names_that_a_source_has_are_fine(self):
        root = self.of("commpool_pool_trim(); COMMPOOL_RECORD", "`commpool_pool_trim` and `COMMPOOL_RECORD`")
        self.assertEqual(page_facts.unknown_names(root), [])

    def test_names_that_no_source_has_are_found(self):
        root = self.of("commpool_pool_trim()", "`commpool_pool_gone`, and an [anchor](a.md#commpool_away)")
        self.assertEqual(page_facts.unknown_names(root), ["page.md: nothing is called commpool_pool_gone"])

    def test_numbers_that_the_source_has_otherwise_are_found(self):
        root = self.of("constexpr int kMost = 256;", "at most 256 pools; at most 128 pools")
        numbers = (("page.md", r"at most (\d+)", "pool.h", r"kMost = (\d+)"),)
        self.assertEqual(page_facts.other_numbers(root, numbers), ["page.md: 128 is 256 in pool.h"])

    def test_programs_that_no_test_runs_are_found(self):
        page = "```python\npool = made()  # by hand\n```\n```python\npool = found()\n```\n"
        root = self.planted({"tests/page_test.py": 'run("pool = made()")', "page.md": page})
        self.assertEqual(page_facts.unrun_programs(root),
                         ["page.md: no test runs the program that begins with pool = found()"])
