"""tools/mutate notices what a test notices, reports what none does, and leaves the sources as they were."""

import pathlib
import subprocess
import tempfile
import unittest

from bazel_judge import BazelJudge
from campaign import Campaign, Verdict, draw
from faults import Fault, faults_of
from known import KnownFaults
from scratch import Scratch

SOURCE = """\
int Clamp(int value, int least, int most) {
  if (value > most) return most;
  if (value < least) return least;
  return value;
}
"""
TEST_OF_MOST = '#include "clamp.cc"\nint main() { return Clamp(9, 0, 5) == 5 && Clamp(4, 0, 5) == 4 ? 0 : 1; }\n'


def changes(source):
    return [(fault.kind, fault.after.strip()) for fault in faults_of("a.cc", source)]


class Faults(unittest.TestCase):

    def test_a_condition_is_negated_as_a_whole(self):
        self.assertEqual(changes("  if (a && b(c)) {\n"), [("negated", "if (!(a && b(c))) {")])

    def test_an_equality_outside_of_a_condition_is_negated(self):
        self.assertEqual(changes("  return a == b;\n"), [("negated", "return a != b;")])

    def test_a_call_and_a_change_are_dropped(self):
        for statement in ["pool->Close(block);", "count_ += bytes;", "++count_;", "return;", "(void)Close();"]:
            self.assertEqual(changes(f"  {statement}\n"), [("dropped", "(void)0;")], statement)

    def test_a_declaration_stays(self):
        for declaration in ["Status Close(Block* block);", "const int bytes = 3;", "return bytes;", "int count_ = 0;"]:
            self.assertEqual(changes(f"  {declaration}\n"), [], declaration)

    def test_a_bound_is_moved(self):
        self.assertEqual(changes("  return a < b;\n"), [("moved", "return a <= b;")])
        self.assertEqual(changes("  return std::min(a, b + 1);\n"),
                         [("moved", "return std::max(a, b + 1);"), ("moved", "return std::min(a, b);")])

    def test_text_comments_and_checks_get_none(self):
        self.assertEqual(changes('  Say("if (a < b) c();");\n'), [("dropped", "(void)0;")])
        self.assertEqual(changes('  // a == b;\n  COMMPOOL_CHECK(a < b &&\n    c == d, "no");\n#if A < B\n'), [])


class Known(unittest.TestCase):
    FAULT = Fault("a.cc", 7, "dropped", "  Reserve(n);", "  (void)0;")

    def test_a_known_fault_has_its_reason_wherever_its_line_stands(self):
        known = KnownFaults("# Words.\n\na.cc: Reserve(n); -> (void)0;\n  Spares\n  copies.\n")
        self.assertEqual(known.reason(self.FAULT), "Spares copies.")
        self.assertIsNone(known.reason(Fault("b.cc", 7, "dropped", "  Reserve(n);", "  (void)0;")))

    def test_an_entry_without_a_reason_is_refused(self):
        with self.assertRaises(ValueError):
            KnownFaults("a.cc: Reserve(n); -> (void)0;\n")

    def test_an_entry_that_names_a_line_and_no_change_is_refused(self):
        with self.assertRaises(ValueError):
            KnownFaults("a.cc: Reserve(n);\n  It would match nothing.\n")

    def test_an_entry_that_the_sources_no_longer_have_is_named(self):
        known = KnownFaults("a.cc: *\n  Checks.\nb.cc: Gone(); -> (void)0;\n  Was slow.\n")
        self.assertEqual(known.stale([self.FAULT]), ["b.cc: Gone(); -> (void)0;"])

    def test_the_list_of_the_repository_can_be_read(self):
        KnownFaults(pathlib.Path("tools/mutation/known_faults.txt").read_text(encoding="utf-8"))


class OfOneProgram(unittest.TestCase):
    """A checkout of one source and one test, which asks for the upper bound alone."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "checkout")
        self.root.mkdir()
        (self.root / "clamp.cc").write_text(SOURCE)
        (self.root / "clamp_test.cc").write_text(TEST_OF_MOST)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)
        self.scratch = Scratch(self.root, pathlib.Path(folder.name, "scratch"))
        self.said = []

    def judge(self, fault):
        with self.scratch.planted(fault):
            program = self.scratch.folder / "program"
            source = self.scratch.folder / "clamp_test.cc"
            if subprocess.run(["g++", "-o", program, source], capture_output=True, check=False).returncode != 0:
                return Verdict.NOT_COMPILED, "no"
            failed = subprocess.run([program], check=False).returncode != 0
        return (Verdict.NOTICED, "clamp_test") if failed else (Verdict.SURVIVED, "1 test passes")

    def campaign(self, drawn, wanted, known=""):
        run = Campaign(self.judge, KnownFaults(known), say=self.said.append)
        with self.scratch.locked():
            run.run(drawn, wanted)
        return run

    def fault(self, kind, line):
        return next(fault for fault in faults_of("clamp.cc", SOURCE) if (fault.kind, fault.line) == (kind, line))

    def test_what_a_test_covers_is_noticed(self):
        run = self.campaign([(0, self.fault("negated", 2)), (1, self.fault("dropped", 2))], 2)
        self.assertEqual(self.said[-1], "2 faults: 2 noticed, 0 survive, 0 equivalent")
        self.assertTrue(run.good())

    def test_what_no_test_covers_survives_and_is_shown(self):
        run = self.campaign([(4, self.fault("dropped", 3))], 1)
        self.assertEqual(self.said[-2:], ["survives: #4 clamp.cc:3\n  - if (value < least) return least;\n  + (void)0;",
                                          "1 faults: 0 noticed, 1 survive, 0 equivalent"])
        self.assertFalse(run.good())

    def test_a_known_fault_counts_neither_way(self):
        known = "clamp.cc: if (value > most) return most; -> if (value >= most) return most;\n  Both are most.\n"
        run = self.campaign([(0, self.fault("moved", 2)), (1, self.fault("negated", 2))], 2, known)
        self.assertEqual(self.said[-1], "2 faults: 1 noticed, 0 survive, 1 equivalent")
        self.assertTrue(run.good())
        self.assertIn("Both are most.", self.said[0])

    def test_what_does_not_compile_is_redrawn(self):
        broken = Fault("clamp.cc", 4, "dropped", "  return value;", "  return valu;")
        run = self.campaign([(0, broken), (1, self.fault("negated", 2)), (2, self.fault("dropped", 3))], 1)
        self.assertEqual((run.judged(), run.counts[Verdict.NOTICED], run.counts[Verdict.NOT_COMPILED]), (1, 1, 1))

    def test_the_checkout_never_changes_and_the_copy_is_put_back(self):
        with self.scratch.locked() as copy, self.assertRaises(KeyError):
            with copy.planted(self.fault("dropped", 3)):
                self.assertNotEqual((copy.folder / "clamp.cc").read_text(), SOURCE)
                self.assertEqual((self.root / "clamp.cc").read_text(), SOURCE)
                raise KeyError
        self.assertEqual((self.scratch.folder / "clamp.cc").read_text(), SOURCE)

    def test_the_copy_follows_the_checkout(self):
        with self.scratch.locked():
            pass
        (self.root / "clamp_test.cc").unlink()
        (self.root / "new.cc").write_text("// New.\n")
        with self.scratch.locked() as copy:
            self.assertEqual(sorted(path.name for path in copy.folder.iterdir()), ["clamp.cc", "new.cc"])

    def test_one_seed_draws_one_order(self):
        found = faults_of("clamp.cc", SOURCE)
        self.assertEqual(draw(found, 5), draw(list(reversed(found)), 5))
        self.assertNotEqual(draw(found, 5), draw(found, 6))


class StandInBazel(unittest.TestCase):
    """What Bazel answers, as a script, leads to a verdict."""

    FAULT = Fault("src/engine/heap.cc", 1, "dropped", "  Leave();", "  (void)0;")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "src/engine").mkdir(parents=True)
        (self.folder / "src/engine/BUILD").touch()
        (self.folder / "src/engine/heap.cc").write_text("  Leave();\n")

    def verdict(self, answer):
        script = self.folder / "bazel"
        script.write_text("#!/bin/sh\n"
                          'if [ "$1" = query ]; then echo //tests/pool:a_test //tests/engine:b_test '
                          "//tests/engine:heap_test; exit; fi\n"
                          f'echo "$*" >> {self.folder}/calls\n{answer}\n')
        script.chmod(0o755)
        return BazelJudge(Scratch(self.folder, self.folder), ["engine", "pool"], str(script))(self.FAULT)

    def test_the_nearest_tests_run_first(self):
        self.assertEqual(self.verdict("exit 0")[0], Verdict.SURVIVED)
        last_words = [line.split()[-1] for line in (self.folder / "calls").read_text().splitlines()]
        self.assertEqual(last_words, ["//tests/engine:heap_test", "//tests/engine:b_test", "//tests/pool:a_test"])

    def test_the_test_that_failed_is_named(self):
        answer = "echo '//tests/engine:heap_test    FAILED in 0.1s'; exit 3"
        self.assertEqual(self.verdict(answer), (Verdict.NOTICED, "//tests/engine:heap_test"))

    def test_a_build_that_fails_is_no_test_that_fails(self):
        self.assertEqual(self.verdict("exit 1")[0], Verdict.NOT_COMPILED)

    def test_a_bazel_that_breaks_off_gives_no_verdict(self):
        with self.assertRaises(RuntimeError):
            self.verdict("exit 37")
