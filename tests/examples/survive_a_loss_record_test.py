"""survive_a_loss --record FILE adds a line of JSON: what the loss cost, and how soon it was noticed."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

_PROGRAM = os.path.abspath("examples/survive_a_loss")


def start(*words, **variables):
    return subprocess.run([_PROGRAM, "--ranks", "3", *words], capture_output=True, text=True, check=False, timeout=200,
                          env={**os.environ, "COMMPOOL_DRIVER": "emulated", **variables})


class Record(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "losses.jsonl")

    def run_with(self, *words):
        result = start("--reserve", "16", "--record", str(self.file), *words)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]

    def check_memory(self, line):
        self.assertEqual([each["rank"] for each in line["each_rank"]], [0, 1, 2])
        for each in line["each_rank"]:
            self.assertGreater(each["free_mib_before"], 1000)
            self.assertEqual(each["free_mib_after"], each["free_mib_before"])

    def test_each_run_adds_a_line_with_what_the_loss_cost(self):
        self.file.write_text('{"another": "line"}\n', encoding="utf-8")
        other, line = self.run_with()
        self.assertEqual(other, {"another": "line"})
        self.assertEqual([line["command"], line["kill"], line["hosts"], line["ranks"], line["reserve_mib"],
                          line["as_expected"]], ["survive_a_loss", "between", 1, 3, 16, True])
        self.assertIn("emulated", line["driver"])
        self.check_memory(line)
        self.assertEqual([each["held_by_nccl_mib"] for each in line["each_rank"]], [0, 0, 0])
        self.assertGreater(line["loss"]["first"], line["loss"]["before"])
        self.assertGreater(line["loss"]["before"], line["loss"]["after"])
        for each in line["each_rank"][:2]:
            self.assertGreater(each["noticed_after_ms"], 0)
        self.assertIsNone(line["each_rank"][2]["noticed_after_ms"], "the dead rank notices nothing")

    def test_a_loss_inside_a_collective_leaves_out_what_nobody_lived_to_tell(self):
        (line,) = self.run_with("--kill", "inside")
        self.assertEqual((line["kill"], line["as_expected"]), ("inside", True))
        self.check_memory(line)
        self.assertIsNone(line["loss"]["after"])
        self.assertGreater(line["loss"]["first"], line["loss"]["before"])
        self.assertEqual([each["held_by_nccl_mib"] for each in line["each_rank"]], [None] * 3)
        self.assertTrue(any(each["noticed_after_ms"] is not None for each in line["each_rank"][:2]))


class FewerGpus(unittest.TestCase):

    def test_no_rank_starts_where_one_has_no_gpu(self):
        result = start(COMMPOOL_EMULATOR="devices=2")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("device 2 was asked for and there are 2: start one rank a GPU", result.stderr)
        self.assertIn("refused: not each of 3 ranks has a GPU", result.stdout)
        self.assertNotIn("step ", result.stdout)
