"""Planted citations: each that resolves to no rule is found."""

import planted
import rules

HOME = "# The library\n\n1. no rule\n\n## Rules\n1. One.\n   2. inside\n2. Two.\n\n## More\n3. no rule\n"
CITE = "ru" + "le"  # in pieces, for the repository's own check reads this file


class Rules(planted.PlantedTest):

    def problems(self, path, text, home=HOME):
        return rules.problems(self.planted({"src/library/reference.md": home, path: text}))

    def test_rules_are_the_numbered_items_of_their_section(self):
        self.assertEqual(rules.rules(HOME), [1, 2])
        self.assertEqual(rules.rules("# No section\n1. One.\n"), [])

    def test_a_citation_that_resolves_is_fine(self):
        self.assertEqual(self.problems("src/a.h", f"// No lock ({CITE} 1), see {CITE}s 1 and 2.\n"), [])

    def test_a_citation_of_no_rule_is_found(self):
        for folder in sorted(rules.FOLDERS):
            self.assertEqual(self.problems(f"{folder}/a.h", f"//\n// No lock ({CITE} 3).\n"),
                             [f"{folder}/a.h:2: {CITE} 3 is not in src/library/reference.md"])

    def test_a_citation_in_a_list_is_found(self):
        self.assertEqual(self.problems("src/a.cc", f"// {CITE}s 1, 2 and 30\n"),
                         [f"src/a.cc:1: {CITE} 30 is not in src/library/reference.md"])

    def test_a_citation_over_the_end_of_a_line_is_found(self):
        for mark in ["//", " *", "#"]:
            self.assertEqual(len(self.problems("tools/a", f"{mark} as {CITE}\n{mark} 7 says\n")), 1)

    def test_other_numbers_are_no_citations(self):
        self.assertEqual(self.problems("src/a.cc", f"// {CITE}r 9, over{CITE} 9, the {CITE} of 9\n"), [])

    def test_a_gap_in_the_numbers_is_found(self):
        self.assert_one("not numbered", self.problems("src/a.cc", "", HOME.replace("2. Two", "3. Two")))

    def test_every_rule_may_go_at_once(self):
        self.assertEqual(len(self.problems("src/a.cc", f"// {CITE} 1\n", "# No rules\n")), 1)
