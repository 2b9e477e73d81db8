"""The checkout keeps to its budget, which does not rise in silence. Run by tools/check: it needs the history."""

import subprocess
import tempfile
import unittest

import budget
import planted
import tree

BUDGET = "# counts\n     2 src/a\n     1 src/a/below\n     3 tools\n     1 public functions\n     4 words of pages\n"


class Counts(planted.PlantedTest):

    def problems(self, files):
        allowed = budget.rows(BUDGET)
        return budget.over(allowed, budget.counts(self.planted(files), budget.folders_of(allowed)))

    def test_what_is_allowed_is_fine(self):
        self.assertEqual(self.problems({
            "src/a/b.cc": "// b\nint b;\n", "src/a/c/d.h": "int d;\n", "src/a/below/e.cc": "int e;\n",
            "tools/f.py": '"""f"""\nf = 1\n', "README.md": "four words of page", "src/a/BUILD": "many\n" * 9,
            "include/commpool/g.h": "COMMPOOL_API int commpool_g(void);\n"}), [])

    def test_each_row_that_is_exceeded_is_named(self):
        self.assertEqual(self.problems({"src/a/b.cc": "int b;\n" * 3, "README.md": "five words of a page"}),
                         ["src/a: 3, over 2 of tests/house/budget", "words of pages: 5, over 4 of tests/house/budget"])

    def test_a_folder_without_a_row_is_found(self):
        self.assertEqual(self.problems({"src/new/b.cc": "int b;\n"}),
                         ["src has code below no row of tests/house/budget"])


class Steps(planted.PlantedTest):

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                       capture_output=True)

    def step(self, tools, body):
        """A second commit that allows so many lines of tools."""
        self.root = self.planted({})
        self.git("init", "--quiet")
        self.commit(BUDGET, "First")
        self.commit(BUDGET.replace("3 tools", f"{tools} tools"), f"Second\n\n{body}\n")
        return budget.Step(self.root)

    def commit(self, text, message):
        planted.write(self.root, {budget.FILE: text, "file": message})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def test_it_may_fall(self):
        self.assertEqual(self.step(2, "Less.").problems, [])

    def test_it_does_not_rise_in_silence(self):
        self.assertEqual(self.step(4, "More.").problems,
                         ["tools rises from 3 to 4: a line of the commit's body says why (`Budget: ...`)"])

    def test_it_rises_for_a_program(self):
        self.assertEqual(self.step(4, "Why.\n\nBudget: tools for a program that replays.").problems, [])

    def test_a_new_row_rises_from_nothing(self):
        self.assertEqual(budget.raised({}, {"src/new": 1}, "")[0][:29], "src/new rises from 0 to 1: a ")

    def test_without_history_it_says_so(self):
        self.step(4, "More.")
        with tempfile.TemporaryDirectory() as shallow:
            subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{self.root}", shallow], check=True)
            self.assertIn("no history here", budget.Step(shallow).why_none)
        self.assertIn("no history here", budget.Step(tempfile.gettempdir()).why_none)


class Repository(unittest.TestCase):

    def test_keeps_to_its_budget(self):
        root = tree.workspace()
        allowed = budget.rows((root / budget.FILE).read_text(encoding="utf-8"))
        self.assertEqual(budget.over(allowed, budget.counts(root, budget.folders_of(allowed))), [])

    def test_says_why_its_budget_rises(self):
        step = budget.Step(tree.workspace())
        if step.why_none:
            self.skipTest(step.why_none)
        self.assertEqual(step.problems, [])
