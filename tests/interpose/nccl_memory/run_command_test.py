"""`commpool run` as a user meets it, on the emulator: the same results from pools, whole segments, peers, bad input."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

_CLI = os.path.abspath("tools/cli/commpool")
_PROGRAM = os.path.abspath("tests/interpose/nccl_memory/nccl_program")
_POOLS = ("run", "--nccl-memory", "pools")


def start(*words):
    return subprocess.run([_CLI, *words], capture_output=True, text=True, timeout=120)


def run(*words, options=()):
    return start("emulate", "--", _CLI, *_POOLS, *options, "--", _PROGRAM, *words)


def statistics(result):
    """{(device, MiB each): (served, made, now, at peak)} of the table."""
    rows = re.findall(r"^ +(\d+) +([\d.]+) +(\d+) +(\d+) +(\d+) +(\d+) +[\d.]+$", result.stderr, re.MULTILINE)
    return {(int(row[0]), float(row[1])): tuple(map(int, row[2:])) for row in rows}


class Case(unittest.TestCase):
    def check(self, result, code, words):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(words, result.stderr)


class Pooled(Case):
    def test_memory_gives_the_same_results_in_windows(self):
        plain = start("emulate", "--", _PROGRAM, "all-reduce")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertIn("a window a window", plain.stdout)
        for backing in ("vmm", "nccl"):
            pooled = run("all-reduce", options=["--backing", backing])
            self.assertEqual((pooled.returncode, pooled.stdout), (0, plain.stdout), pooled.stderr)
            self.assertEqual(statistics(pooled), {(0, 8.0): (1, 1, 0, 1), (1, 8.0): (1, 1, 0, 1)})

    def test_memory_is_kept_for_the_next_of_its_size(self):
        result = run("all-reduce", "all-reduce", "all-reduce")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(statistics(result)[0, 8.0], (3, 1, 0, 1))
        self.assertEqual(len(set(re.findall(r"buffer (\S+)", result.stderr))), 2, "one for each device")

    def test_allocations_are_whole_segments(self):
        result = run("sizes", "sizes")
        self.assertEqual(result.stdout, ("whole " * 6 + "\n") * 2, result.stderr)
        self.assertEqual(statistics(result), {(0, 4.0): (8, 4, 0, 4), (0, 6.0): (4, 2, 0, 2)})

    def test_memory_is_the_peers_where_asked(self):
        self.assertEqual(run("peers").stdout, "access 0\n")
        self.assertEqual(run("peers", options=["--peers", "1"]).stdout, "access 3\n")
        self.assertEqual(run("peers", options=["--peers", "all"]).stdout, "access 3\n")

    def test_memory_that_is_not_there_is_an_error_of_nccls_with_a_reason(self):
        result = run("refused")
        self.assertEqual(result.stdout, "1 0\n", result.stderr)
        self.assertIn("commpool run: process", result.stderr)
        self.assertIn('no memory for 1 TiB in pool ncclMemAlloc', result.stderr)

    def test_what_no_allocation_begins_is_never_handed_on_to_nccl(self):
        answers = "inside 4, end 4, in a child 4, elsewhere 4, again 4\n"
        for backing in ("vmm", "nccl", "cuda"):
            result = run("free-wrongly", options=["--backing", backing])
            self.assertEqual((result.returncode, result.stdout), (0, answers), result.stderr)
            self.assertIn("ncclMemFree: no allocation begins at ", result.stderr)
        result = run("sizes", "free-a-pools")
        self.assertEqual(result.stdout.splitlines()[1:], ["a pool's 4, inside 4, by commpool 0"], result.stderr)

    def test_memory_is_a_forks_whose_parent_used_no_cuda(self):
        result = run("in-a-fork", "free-wrongly")
        answers = "inside 4, end 4, in a child 4, elsewhere 4, again 4\n"
        self.assertEqual((result.returncode, result.stdout), (0, answers), result.stderr)
        self.assertEqual(statistics(result), {(0, 8.0): (2, 1, 0, 1)}, result.stderr)

    def test_nccls_own_memory_goes_back_to_it(self):
        self.assertEqual(run("sizes", "free-nccls").stdout.splitlines()[1:], ["NCCL's 0"])


class Own(Case):
    def test_memory_stays_nccls_where_nobody_asked_for_pools(self):
        result = start("emulate", "--", _CLI, "run", "--", _PROGRAM, "all-reduce")
        self.assertEqual(statistics(result), {})
        self.check(result, 0, "nothing here ran out of memory")


class Programs(Case):
    def test_that_ask_for_nothing_are_told(self):
        self.check(run(), 0, "nobody called ncclMemAlloc")

    def test_without_a_shared_nccl_are_told(self):
        self.check(start(*_POOLS, "--", sys.executable, "-c", "pass"), 0, "no libnccl.so.2 was loaded")

    def test_with_an_nccl_of_their_own_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "static_nccl")
            source = "int ncclMemAlloc(void) { return 0; }\nint main(void) { return ncclMemAlloc(); }\n"
            subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
            result = start(*_POOLS, "--", program)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn(f"{program} has an NCCL of its own, linked statically", result.stdout)

    def test_that_do_not_exist_are_an_error(self):
        self.check(start("run", "--", "no-such-program"), 4, "commpool run: cannot start no-such-program")

    def test_are_audited_too(self):
        result = start("emulate", "--", _CLI, "audit", "--", _CLI, *_POOLS, "--", _PROGRAM, "all-reduce")
        self.check(result, 0, "ncclMemAlloc from pools")
        self.assertRegex(result.stderr, r"commpool +memory \(VMM\) +0 +1 +0 ")
