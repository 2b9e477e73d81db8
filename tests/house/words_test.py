"""Planted names with words that the table of src/library/reference.md rules out: each is found."""

import planted
import words

HOME = """## Words
| word | means | not |
|---|---|---|
| statistics | what a pool tells | figures, stats |
| group | pools of one home | |
| pin | a reason | lock |

| other | table | not |
|---|---|---|
| a | b | counter |
"""


class Words(planted.PlantedTest):

    def problems(self, path, text=""):
        return words.problems(self.planted({"src/library/reference.md": HOME, path: text}))

    def test_the_table_says_which_but_for_those_with_other_meanings(self):
        self.assertEqual(words.unwanted(HOME), {"figures", "stats"})
        self.assertEqual(words.unwanted("no table"), set())

    def test_a_files_name_is_judged(self):
        self.assertEqual(self.problems("src/library/pool/figures.py"),
                         ["src/library/pool/figures.py: src/library/reference.md has another word for `figures`"])

    def test_a_name_is_judged_by_its_parts(self):
        for name in ("figures", "PoolFigures", "figures_", "kAllFigures", "of_figures"):
            self.assertEqual(self.problems("include/a.h", f"//\nint {name};\n"),
                             [f"include/a.h:2: {name}: src/library/reference.md has another word for `figures`"])
        self.assertEqual(self.problems("tools/a.h", "int configures, Figure, counter, lock;\n"), [])

    def test_python_is_judged_too(self):
        self.assertEqual(self.problems("tools/a.py", '"""figures"""\nfigures = "figures"  # figures\n'),
                         ["tools/a.py:2: figures: src/library/reference.md has another word for `figures`"])

    def test_comments_and_strings_are_not(self):
        self.assertEqual(self.problems("src/a.cc", '// figures\n/* figures */ auto a = "figures";\n'), [])

    def test_public_names_and_those_of_others_are_not(self):
        self.assertEqual(self.problems("src/a.cc", "pool.stats(); ncclCommMemStats(); getDeviceStats(0);\n"), [])
        self.assertEqual(self.problems("tests/a.py", "torch.cuda.reset_peak_memory_stats(), host.get_stats()\n"), [])
        self.assertEqual(len(self.problems("src/a.cc", "MyStats stats;\n")), 1)

    def test_what_others_recorded_is_not(self):
        self.assertEqual(self.problems("tests/data/a/figures.h", "int figures;\n"), [])
