"""tools/suites/memory_of_programs.py: what it tells of children, and which goals their figures miss."""

import sys
import unittest

import memory_of_programs

MIB = 1 << 20
HELD = {"native": 150, "expandable segments": 104, "fixed pool": 110, "expandable pool": 101}


def outcomes(**changes):
    """Of a program that asks for 100 MiB; `fixed_pool=90` is what a fixed pool holds."""
    held = {**HELD, **{name.replace("_", " "): size for name, size in changes.items()}}
    return {name: {"requested": 100 * MIB, "reserved": size * MIB} for name, size in held.items()}


class MemoryOfPrograms(unittest.TestCase):
    def test_a_row_has_what_was_asked_for_and_the_shares_that_were_held(self):
        lines, status = memory_of_programs.table({"one": outcomes()})
        self.assertEqual(lines[1].split(), ["one", "100", "1.500", "1.040", "1.100", "1.010"])
        self.assertEqual((lines[-1], status), ("1 programs, 0 runs failed, 0 programs miss a goal", 0))

    def test_a_goal_that_is_missed_is_told(self):
        for changes, goal in (({"expandable_segments": 100}, "expandable pool not tightest"),
                              ({"fixed_pool": 151}, "fixed pool over native"),
                              ({"expandable_pool": 103}, "expandable pool over 1.02")):
            lines, status = memory_of_programs.table({"one": outcomes(**changes), "two": outcomes()})
            self.assertTrue(lines[1].endswith(f"  {goal}"), lines)
            self.assertEqual((lines[-1], status), ("2 programs, 0 runs failed, 1 programs miss a goal", 1))

    def test_a_run_that_failed_is_in_its_row_and_has_its_error(self):
        lines, status = memory_of_programs.table({"one": {**outcomes(), "native": {"error": "ValueError: no"}}})
        self.assertEqual(lines[1].split(), ["one", "100", "failed", "1.040", "1.100", "1.010"])
        self.assertEqual(lines[-2:], ["one, native: ValueError: no",
                                      "1 programs, 1 runs failed, 0 programs miss a goal"])
        self.assertEqual(status, 2)
        self.assertEqual(memory_of_programs.table({})[1], 2)

    def test_a_child_is_heard_or_its_error_is(self):
        for code, loss, error in (("print('{\"loss\": 0.5}\\nand more')", 0.5, None),
                                  ("print(2)\nraise ValueError('no')", None, "ValueError: no"),
                                  ("print('{\"loss\": 1}'); exit(124)", None, "took too long"),
                                  ("import os; os.abort()", None, "status -6"), ("", None, "status 0")):
            said = memory_of_programs.run([sys.executable, "-c", code])
            self.assertEqual((said.get("loss"), said.get("error")), (loss, error), code)
