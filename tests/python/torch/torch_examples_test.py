"""The PyTorch examples print on the emulator what they promise."""

import json
import pathlib
import re
import tempfile
import unittest

from rank_processes import printed_by_ranks
from routed import LIBRARY

_EXAMPLES = pathlib.Path("examples/python/torch").absolute()


def run(name, *words, ranks=1, **variables):
    """The lines that an example's ranks print, in order."""
    return "".join(printed_by_ranks(_EXAMPLES / name, *words, ranks=ranks, seconds=250, COMMPOOL_LIBRARY=LIBRARY,
                                    **variables)).splitlines()


class Examples(unittest.TestCase):
    def test_are_all_tried(self):
        self.assertEqual({file.name for file in _EXAMPLES.glob("*.py")},
                         {"backward.py", "decode.py", "elastic_training.py", "recorded.py", "sleeping.py",
                          "symmetric.py", "train.py", "train_sharded.py", "updated_weights.py",
                          "whole_allocator.py"})

    def test_backward(self):
        lines = run("backward.py")
        self.assertEqual(lines[:2], ["weights:  torch's own memory", "gradient: the pool"])
        self.assertRegex(lines[2], "torch counts .* of which the pool has [48]")
        self.assertIn("0 B in use of 0 B reserved", lines[3])

    def test_whole_allocator(self):
        lines = run("whole_allocator.py")
        self.assertRegex(lines[0], r"tensors have \d+ MiB, at most \d+")
        self.assertEqual(lines[1:], ["all of it in the pool: True", "torch's own again: True"])

    def test_updated_weights(self):
        self.assertEqual(run("updated_weights.py"), [
            "the engine has them in place, on cuda:0",
            "it answered: True, from weights of two steps: 0, in order: True",
            "after 50 steps its last answer is of step 50: True",
        ])

    def test_sleeping(self):
        self.assertEqual(run("sleeping.py"), ["asleep: True, kept on the host: 8 MiB",
                                              "at the same address: True, sum 3145728"])

    def test_symmetric(self):
        self.assertEqual(run("symmetric.py", ranks=2), ["rank 0: offset 0 of its window, sum 2",
                                                        "rank 1: offset 0 of its window, sum 2"])

    def check_elastic(self, kill, **variables):
        """The losses are those of 3 ranks before the loss, and of 2 ranks from its step on, which the survivors
        repeat."""
        lines, weight = run("elastic_training.py", "--ranks", "3", "--kill", kill, **variables), 1.0
        steps = [re.fullmatch(r"step (\d): loss (\S+), (\d) ranks", line) for line in lines]
        said = [(int(step[1]), float(step[2]), int(step[3])) for step in steps if step]
        self.assertEqual([number for number, _, _ in said], list(range(8)), lines)
        for number, loss, ranks in said:
            self.assertEqual(ranks, 2 if number >= 4 else 3, lines)
            self.assertAlmostEqual(loss, (weight - 2) ** 2, delta=1e-5)
            weight -= 2 * (weight - 2) * sum((1 + rank) ** 2 for rank in range(ranks)) / ranks / 32
        ended = [float(line.partition("weight ")[2]) for line in lines if re.match(r"rank \d: weight", line)]
        self.assertEqual(ended, [ended[0]] * 2, lines)
        self.assertAlmostEqual(ended[0], weight, delta=1e-5)
        self.assertIn("rank 2 is lost: 2 go on", lines)
        self.assertEqual(lines[-1], "every rank ended as it should")

    def test_elastic_training_goes_on_without_a_rank_that_dies_between_steps(self):
        self.check_elastic("between")

    def test_elastic_training_goes_on_without_a_rank_that_dies_inside_a_collective(self):
        self.check_elastic("inside", COMMPOOL_EMULATOR="nccl=2.30.7")  # before 2.29.7 it never ends

    def record(self, name):
        """What the first rank prints, and the record that it writes."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "record")
            lines = run(name, "--tiny", "--record", str(file), ranks=2)
            return lines, json.loads(file.read_text(encoding="utf-8"))

    def check_record(self, record, collective, kernel):
        """Checks the times, the held memory, and that the collective uses windows with the pool and none without it."""
        self.assertEqual((sorted(record), record["ranks"]), (["plain", "ranks", "windows"], 2))
        plain, windows = record["plain"], record["windows"]
        self.assertEqual((plain["pool_mib"], windows["pool_mib"] > 0), (0, True), record)
        self.assertTrue(plain["torch_mib"] > 0 and windows["torch_mib"] > 0, record)
        of_plain, of_windows = (of["collectives"][collective] for of in (plain, windows))
        self.assertEqual(of_plain["registrations"], {"none": of_plain["calls"]})
        self.assertEqual(of_windows["registrations"]["window"], of_plain["calls"])
        self.assertEqual(of_windows["kernels"][kernel], of_plain["calls"])

    def test_decode(self):
        lines, record = self.record("decode.py")
        self.assertEqual(lines[0], "50 of 50 tokens are the same")
        self.assertRegex(lines[1], r"a token takes \d+ us, and \d+ us in windows")
        self.check_record(record, "AllReduce", "AllReduce_AGxLL_R")

    def test_train(self):
        lines, record = self.record("train.py")
        self.assertEqual(lines[0], "losses apart by at most 0; 1028 KiB of buckets in windows")
        self.check_record(record, "AllReduce", "AllReduce_RSxLD_AGxST")

    def test_train_sharded(self):
        lines, record = self.record("train_sharded.py")
        self.assertEqual(lines[0], "losses apart by at most 0; 104 all-gathers in 2 windows of 128 KiB")
        self.check_record(record, "AllGather", "copy engines")
