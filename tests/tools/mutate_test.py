"""tools/mutate notices what a test notices, reports what none does, and leaves the sources as they were."""

import pathlib
import subprocess
import tempfile
import unittest

import switches
from bazel_judge import BazelJudge
from campaign import Campaign, Verdict, draw
from faults import Fault, faults_of
from known import KnownFaults
from scratch import Scratch
from switched_judge import FailingTests, SwitchedJudge

HEAP = "src/library/engine/heap.cc"
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

    def test_the_end_of_a_statement_is_not_dropped(self):
        self.assertEqual(changes("  const bool all =\n      Count(a);\n"), [])

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
        self.assertRaises(ValueError, KnownFaults, "a.cc: Reserve(n); -> (void)0;\n")

    def test_an_entry_that_names_a_line_and_no_change_is_refused(self):
        self.assertRaises(ValueError, KnownFaults, "a.cc: Reserve(n);\n  It would match nothing.\n")

    def test_an_entry_that_the_sources_no_longer_have_is_named(self):
        known = KnownFaults("a.cc: *\n  Checks.\nb.cc: Gone(); -> (void)0;\n  Was slow.\n")
        self.assertEqual(known.stale([self.FAULT]), ["b.cc: Gone(); -> (void)0;"])

    def test_the_list_of_the_repository_can_be_read(self):
        KnownFaults(pathlib.Path("tools/mutation/known_faults.txt").read_text(encoding="utf-8"))


class Foldered(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))


class OfOneProgram(Foldered):
    """A checkout of one source and one test, which asks for the upper bound alone."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkout"
        self.root.mkdir()
        (self.root / "clamp.cc").write_text(SOURCE)
        (self.root / "clamp_test.cc").write_text(TEST_OF_MOST)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)
        self.scratch = Scratch(self.root, self.folder / "scratch")
        self.said = []

    def judge(self, fault):
        lines = SOURCE.split("\n")
        lines[fault.line - 1] = fault.after
        (self.scratch.folder / fault.path).write_text("\n".join(lines))
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

    def test_the_checkout_never_changes_and_the_next_run_begins_with_a_fresh_copy(self):
        with self.scratch.locked() as copy:
            (copy.folder / "clamp.cc").write_text("// planted\n")
            self.assertEqual((self.root / "clamp.cc").read_text(), SOURCE)
        with self.scratch.locked() as copy:
            self.assertEqual((copy.folder / "clamp.cc").read_text(), SOURCE)

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


class SwitchedLines(unittest.TestCase):

    def switched(self, line, kind):
        fault = next(fault for fault in faults_of("a.cc", line) if fault.kind == kind)
        text = switches.switched(fault, 7)
        return text and text.replace("commpool_planted::Is(7)", "?")

    def test_a_dropped_statement_is_done_while_its_switch_is_off(self):
        self.assertEqual(self.switched("  Close(block);  // why\n", "dropped"), "  { if (!?) { Close(block); } }")

    def test_a_condition_is_one_of_two(self):
        self.assertEqual(self.switched("  if (a(b)) return c;\n", "negated"),
                         "  if (? ? static_cast<bool>(!(a(b))) : static_cast<bool>(a(b))) return c;")
        self.assertEqual(self.switched("  for (int i = 0; i < n; ++i) {\n", "moved"),
                         "  for (int i = 0; ? ? (i <= n) : (i < n); ++i) {")

    def test_a_value_is_one_of_two(self):
        self.assertEqual(self.switched("  return a == b;\n", "negated"), "  return ? ? (a != b) : (a == b);")
        self.assertEqual(self.switched("  const int c = std::min(a, b);\n", "moved"),
                         "  const int c = ? ? (std::max(a, b)) : (std::min(a, b));")

    def test_what_one_line_cannot_hold_twice_has_no_switch(self):
        self.assertIsNone(self.switched("  a == b;\n", "negated"))
        self.assertIsNone(self.switched("      Call(a == b,\n", "negated"))


class OfOneBuild(Foldered):
    """A source with all its switches, as a program that prints what it clamps."""

    SOURCE = ("#include <cstdio>\nnamespace a {\n" + SOURCE +
              "}\nint main() { std::printf(\"%d\", a::Clamp(9, 0, 5)); }\n")

    def setUp(self):
        super().setUp()
        self.faults = faults_of("a.cc", self.SOURCE)
        self.switches = switches.Switches(self.faults)

    def prints(self, **environment):
        source, program = self.folder / "a.cc", self.folder / "program"
        source.write_text(self.switches.text("a.cc", self.SOURCE))
        subprocess.run(["g++", "-std=c++20", "-Wall", "-Werror", "-o", program, source], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True, env=environment).stdout

    def switch(self, *lines):
        """Drops these lines alone."""
        self.switches = switches.Switches([self.dropped(line) for line in lines])

    def dropped(self, line):
        return next(fault for fault in self.faults if (fault.kind, fault.line) == ("dropped", line))

    def test_a_switch_turns_its_fault_on_and_no_other(self):
        self.switch(4, 5)
        self.assertEqual([self.prints(), self.prints(COMMPOOL_PLANTED="0"), self.prints(COMMPOOL_PLANTED="1")],
                         ["5", "9", "5"])

    def test_a_program_notes_the_lines_that_it_comes_to_once(self):
        self.switch(4, 5)
        notes = self.folder / "notes"
        notes.touch()
        self.prints(COMMPOOL_PLANTED_REACHED=str(notes), TEST_TARGET="//a:b")
        self.assertEqual(notes.read_text(), "//a:b 0000000\n", "it returns before the second")

    def test_lines_keep_their_numbers_and_one_fault_each(self):
        text = self.switches.text("a.cc", self.SOURCE)
        self.assertIn("#line 2\nnamespace a {", text)
        self.assertEqual(text.count("commpool_planted::Is("), len({fault.line for fault in self.faults}))
        self.assertFalse(all(self.switches.has(fault) for fault in self.faults))

    def test_a_fault_that_stands_alone_is_planted_among_the_others(self):
        self.switch(4)
        text = self.switches.text("a.cc", self.SOURCE, alone=self.dropped(5))
        self.assertIn("if (!commpool_planted::Is(0))", text)
        self.assertNotIn("value < least", text)
        self.assertTrue(self.switches.drop_at("a.cc", 4))
        self.assertEqual(self.switches.text("a.cc", self.SOURCE), self.SOURCE)

    def test_an_error_is_of_the_nearest_fault_before_it(self):
        self.switch(4, 5)
        self.assertTrue(self.switches.drop_at("a.cc", 6))
        self.assertEqual([self.switches.has(self.dropped(line)) for line in (4, 5)], [True, False])
        self.assertFalse(self.switches.drop_at("a.cc", 3))


class StandIn(Foldered):
    """A checkout of one source of the engine, with a script in Bazel's place."""

    SOURCE = ""

    def setUp(self):
        super().setUp()
        (self.folder / "src/library/engine").mkdir(parents=True)
        (self.folder / "src/library/engine/BUILD").touch()
        self.source = self.folder / HEAP
        self.source.write_text(self.SOURCE)

    def calls(self):
        """The words of each call that the script noted."""
        return [line.split() for line in (self.folder / "calls").read_text().splitlines()]

    def bazel_judge(self, answers):
        script = self.folder / "bazel"
        script.write_text(f'#!/bin/sh\n{answers}')
        script.chmod(0o755)
        return BazelJudge(Scratch(self.folder, self.folder), ["engine", "pool"], str(script))


class StandInBuild(StandIn):
    """What Bazel answers of a build with switches leads to verdicts."""

    LEAVE = Fault(HEAP, 2, "dropped", "  Leave();", "  (void)0;")
    CONSTANT = Fault(HEAP, 3, "dropped", "  Count();", "  (void)0;")
    IN_HEADER = Fault("src/library/engine/heap.h", 2, "dropped", "  Count();", "  (void)0;")
    SOURCE = "namespace a {\n  Leave();\n  Count();\n}\n"

    def judge(self, of_test):
        """A compiler that takes no switch in line 3; two tests come to line 2."""
        bazel = self.bazel_judge(f"""echo "$*" >> {self.folder}/calls
case "$1 $*" in
  query*) echo //tests/pool:a_test ;;
  build*) grep -q 'Count(); }} }}' {self.source} \\
      && echo 'src/library/engine/heap.cc:3:9: error: not constant' >&2 && exit 1 ;;
  *REACHED=*) notes=${{*#*REACHED=}}; notes=${{notes%% *}}
    printf '//tests/pool:a_test 0000000\n//tests/engine:heap_test 0000000\n' > "$notes" ;;
  *) {of_test} ;;
esac
exit 0
""")
        return SwitchedJudge(Scratch(self.folder, self.folder), bazel)

    def test_a_fault_is_switched_on_in_the_tests_that_come_to_its_line(self):
        judge = self.judge("exit 0")
        judge.prepare([self.LEAVE])
        self.assertEqual(judge(self.LEAVE), (Verdict.SURVIVED, "2 tests pass"))
        last = self.calls()[-2:]
        self.assertEqual([words[-1] for words in last], ["//tests/engine:heap_test", "//tests/pool:a_test"])
        self.assertTrue(all("--test_env=COMMPOOL_PLANTED=0" in words for words in last))

    def test_a_line_that_no_test_comes_to_survives(self):
        judge = self.judge("exit 3")
        elsewhere = Fault(HEAP, 4, "dropped", "}", "(void)0;}")
        judge.prepare([self.LEAVE, elsewhere])
        self.assertEqual(judge(elsewhere), (Verdict.SURVIVED, "no test comes to the line"))

    def test_what_compiles_with_no_switch_is_planted_alone_and_taken_out(self):
        judge = self.judge(f"grep -q 'Count' {self.source} && exit 0; "
                           "echo '//tests/pool:a_test FAILED in 0.1s'; exit 3")
        judge.prepare([self.LEAVE, self.CONSTANT])
        self.assertEqual(judge(self.CONSTANT), (Verdict.NOTICED, "//tests/pool:a_test"))
        self.assertIn("  Count();", self.source.read_text())
        self.assertIn("commpool_planted::Is(0)", self.source.read_text())

    def test_a_header_of_which_the_compiler_complains_is_known_by_the_folder_that_it_searched(self):
        header = self.folder / "src/library/engine/heap.h"
        header.write_text("namespace a {\n  Count();\n}\n")
        bazel = self.bazel_judge(f"""case "$1 $*" in
  query*) echo //tests/pool:a_test ;;
  build*) grep -q planted {header} && echo './src/library/engine/heap.h:2:9: error: not constant' >&2 && exit 1 ;;
  *REACHED=*) ;;
  *) grep -q Count {header} || {{ echo '//tests/pool:a_test FAILED in 0.1s'; exit 3; }} ;;
esac
exit 0
""")
        judge = SwitchedJudge(Scratch(self.folder, self.folder), bazel)
        judge.prepare([self.IN_HEADER])
        self.assertEqual(judge(self.IN_HEADER), (Verdict.NOTICED, "//tests/pool:a_test"))

    def test_tests_that_fail_while_all_is_off_end_the_run(self):
        judge = self.judge("exit 0")
        (self.folder / "bazel").write_text('#!/bin/sh\n[ "$1" = build ] || exit 3\n')
        self.assertRaises(FailingTests, judge.prepare, [self.LEAVE])


class StandInBazel(StandIn):
    """What Bazel answers, as a script, leads to a verdict."""

    FAULT = Fault(HEAP, 1, "dropped", "  Leave();", "  (void)0;")
    SOURCE = "  Leave();\n"

    def verdict(self, answer):
        judge = self.bazel_judge('if [ "$1" = query ]; then echo //tests/pool:a_test //tests/engine:b_test '
                                 "//tests/engine:heap_test; exit; fi\n"
                                 f'echo "$*" >> {self.folder}/calls\n{answer}\n')
        return judge.verdict(self.FAULT, judge.affected(self.FAULT.path))

    def test_the_nearest_tests_run_first(self):
        self.assertEqual(self.verdict("exit 0")[0], Verdict.SURVIVED)
        self.assertEqual([words[-1] for words in self.calls()],
                         ["//tests/engine:heap_test", "//tests/engine:b_test", "//tests/pool:a_test"])

    def test_the_test_that_failed_is_named(self):
        answer = "echo '//tests/engine:heap_test    FAILED in 0.1s'; exit 3"
        self.assertEqual(self.verdict(answer), (Verdict.NOTICED, "//tests/engine:heap_test"))

    def test_a_build_that_fails_is_no_test_that_fails(self):
        self.assertEqual(self.verdict("exit 1")[0], Verdict.NOT_COMPILED)

    def test_every_folder_of_tests_is_asked(self):
        judge = self.bazel_judge(f'echo "$*" >> {self.folder}/calls; echo //tests/pool:a_test\n')
        judge.affected("src/library/engine/heap.cc")
        self.assertIn("//tests/engine/... + //tests/pool/...", (self.folder / "calls").read_text())

    def test_a_bazel_that_breaks_off_gives_no_verdict(self):
        self.assertRaises(RuntimeError, self.verdict, "exit 37")
