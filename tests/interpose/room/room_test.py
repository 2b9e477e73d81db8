"""`commpool run` where calls run out of memory beside full pools, on the emulator: who gets it; nobody hangs."""

import os
import re
import subprocess
import unittest

_CLI = os.path.abspath("tools/cli/commpool")
_PROGRAM = os.path.abspath("tests/interpose/room/starving_program")
_MACHINE = {"COMMPOOL_EMULATOR": "devices=2,memory=512MiB,nccl=2.29.7"}


def start(*words, under=("run", "--")):
    return subprocess.run([_CLI, "emulate", "--", _CLI, *under, _PROGRAM, *words], env={**os.environ, **_MACHINE},
                          capture_output=True, text=True, timeout=300, check=False)


def table(result):
    """{(who, call): (failed, asked, right)} of the summary."""
    rows = re.findall(r"^  (\S.*?) +(cu\w+) +(\d+) +(\d+) +(\d+) +-?[\d.]+$", result.stderr, re.MULTILINE)
    return {(row[0], row[1]): tuple(map(int, row[2:])) for row in rows}


class Calls(unittest.TestCase):
    def test_that_ran_out_get_what_pools_do_not_use(self):
        for pool in ("fixed", "expandable", "cuda"):
            result = start(pool)
            self.assertEqual((result.returncode, result.stdout), (0, "0 0 0 2 1 "), (pool, result.stderr))
            self.assertEqual(table(result), {
                ("the program", "cuMemAlloc_v2"): (2, 2, 1), ("the program", "cuMemCreate"): (1, 1, 1),
                ("the program", "cuMemAllocAsync"): (1, 1, 1)}, result.stderr)
            self.assertIn("out of memory, so pools and PyTorch's cache were asked", result.stderr)

    def test_of_a_fork_whose_parent_used_no_cuda_get_it_too(self):
        result = start("in-a-fork", "fixed")
        self.assertEqual((result.returncode, result.stdout), (0, "0 0 0 2 1 "), result.stderr)
        self.assertEqual(table(result)["the program", "cuMemAlloc_v2"], (2, 2, 1), result.stderr)

    def test_fail_without_run(self):
        result = start("fixed", under=("emulate", "--"))
        self.assertEqual(result.stdout, "2 2 2 2 1 ", result.stderr)

    def test_are_audited_too_each_time(self):
        result = start("fixed", under=("audit", "--by", "preload", "--", _CLI, "run", "--"))
        self.assertEqual(result.stdout, "0 0 0 2 1 ", result.stderr)
        self.assertRegex(result.stderr, r"commpool audit: [^\n]*out of memory: cuMemAlloc_v2")

    def test_of_commpool_itself_are_its_own_matter(self):
        self.assertNotIn("commpool  ", "".join(who for who, call in table(start("storm"))))

    def test_in_a_capture_ask_for_nothing_and_do_not_break_it(self):
        result = start("capture")
        self.assertEqual((result.returncode, result.stdout), (0, "2 0 0 "), result.stderr)
        self.assertEqual(table(result), {("the program", "cuMemCreate"): (2, 1, 1)}, result.stderr)


class Nobody(unittest.TestCase):
    def test_waits_where_a_receive_is_pending_and_another_communicator_begins(self):
        for word in ("pending", "pending-cuda"):
            result = start(word)
            self.assertEqual((result.returncode, result.stdout), (0, "600 0 "), result.stderr)
            self.assertGreaterEqual(table(result)["NCCL", "cuMemCreate"][2], 2, result.stderr)

    def test_hangs_in_storms_of_a_thousand_failures(self):
        result = start("storm")
        self.assertEqual((result.returncode, result.stdout), (0, "0 "), result.stderr)
        self.assertGreaterEqual(sum(row[0] for row in table(result).values()), 1000, result.stderr)
