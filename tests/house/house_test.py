"""The repository itself keeps the rules of the house."""

import os
import re
import subprocess
import sys
import unittest

import backings
import count_code
import definitions
import faults
import known
import layers
import links
import page_facts
import rules
import tidy
import tree
import words


class House(unittest.TestCase):

    def assert_none(self, found):
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_no_file_includes_above_or_beside_its_layer(self):
        self.assert_none(layers.problems(tree.workspace()))

    def test_backings_are_known_to_one_list(self):
        self.assert_none(backings.problems(tree.workspace()))

    def test_no_name_is_defined_twice_in_a_name_space(self):
        self.assert_none(definitions.problems(tree.workspace()))

    def test_every_file_is_tidy(self):
        self.assert_none(tidy.problems(tree.workspace()))

    def test_every_rule_that_is_cited_stands_in_the_reference(self):
        self.assert_none(rules.problems(tree.workspace()))
        cited = [number for path in tree.files(tree.workspace())
                 for _, number in rules.citations(tree.read(tree.workspace(), path) or "")]
        self.assertGreater(len(cited), 20, "citations are not found any more")

    def test_no_name_has_a_word_that_the_reference_rules_out(self):
        self.assertIn("stats", words.unwanted(tree.read(tree.workspace(), words.HOME)))
        self.assert_none(words.problems(tree.workspace()))

    def test_every_link_of_a_document_leads_somewhere(self):
        self.assert_none(links.problems(tree.workspace()))

    def test_names_and_numbers_of_pages_are_those_of_the_sources(self):
        root = tree.workspace()
        self.assert_none(page_facts.unknown_names(root) + page_facts.other_numbers(root) +
                         page_facts.unrun_programs(root))

    def test_the_first_page_s_numbers_are_those_that_were_measured(self):
        root = tree.workspace()
        for script, page in (("headline.py", "README.md"), ("headline_picture.py", "tools/bench/results/headline.svg")):
            printed = subprocess.run([sys.executable, "-B", str(root / "tools/bench" / script)], capture_output=True,
                                     text=True, check=True).stdout
            self.assertIn(printed, (root / page).read_text(encoding="utf-8"))

    def test_every_script_of_tools_tells_how_it_is_called(self):
        scripts = [path for path in (tree.workspace() / "tools").iterdir()
                   if path.is_file() and os.access(path, os.X_OK)]
        self.assertGreater(len(scripts), 8)
        for script in scripts:
            run = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ""), script)
            self.assertIn("usage: ", run.stdout, script)

    def test_every_script_sources_what_is_there(self):
        root = tree.workspace()
        named = re.compile(r'^source "\$\(dirname "\$\{BASH_SOURCE\[0\]\}"\)/([^"]+)"', re.MULTILINE)
        found = [(path, word) for path in tree.files(root)
                 for word in named.findall((root / path).read_text(encoding="utf-8", errors="replace"))]
        self.assertGreater(len(found), 5)
        self.assertEqual([one for one in found if not (root / one[0]).parent.joinpath(one[1]).exists()], [])

    def test_every_fault_that_is_known_has_its_line_in_the_sources(self):
        text = tree.read(tree.workspace(), "tools/mutation/known_faults.txt")
        gone = known.KnownFaults(text).stale(faults.faults_below(tree.workspace(), faults.LAYERS))
        self.assertFalse(gone, "tools/mutation/known_faults.txt names what is gone:\n" + "\n".join(gone))

    def test_the_count_finds_the_example_of_each_kind_of_change(self):
        count = count_code.Count(tree.workspace())
        self.assertEqual([kind for kind, paths in count.touched.items() if not paths], [], "choose other examples")
        self.assertGreater(count.library(), 10_000)

    def test_the_tree_was_found(self):
        paths = {str(path) for path in tree.files(tree.workspace())}
        self.assertIn("include/commpool/commpool.h", paths)
        self.assertIn("tests/house/house_test.py", paths)
