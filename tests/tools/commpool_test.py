"""The CLI as a user meets it, on the emulator: exit codes, JSON, records."""

import json
import os
import subprocess
import tempfile
import unittest

_CLI = os.path.abspath("tools/cli/commpool")
_RANKS = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "4"]


def run(*arguments, ranks=False, **variables):
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    command = (_RANKS if ranks else []) + [_CLI, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


class Info(unittest.TestCase):
    def test_names_devices_and_says_why_a_backing_cannot(self):
        info = json.loads(run("info", "--json", COMMPOOL_EMULATOR="devices=2").stdout)
        self.assertEqual([device["reaches"] for device in info["devices"]], [[1], [0]])
        refused = [row for row in info["backings"] if not row["make"]["available"]]
        self.assertTrue(refused)
        for row in refused:
            self.assertTrue(row["make"]["reason"])

    def test_says_what_to_do_without_a_driver(self):
        result = run("info", COMMPOOL_DRIVER="cuda", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(result.returncode, 4)
        self.assertIn("COMMPOOL_DRIVER=emulated", result.stderr)


class AllReduce(unittest.TestCase):
    def test_four_ranks_agree_on_right_sums_in_windows(self):
        result = run("allreduce", "--register", "window", "--bytes", "8K:1M", "--check", "--json", ranks=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(sorted(report), ["backing", "driver", "location", "ranks", "registration_asked", "rows"])
        self.assertEqual(report["ranks"], 4)
        self.assertEqual([row["bytes"] for row in report["rows"]], [8192 << shift for shift in range(8)])
        for row in report["rows"]:
            self.assertEqual(sorted(row),
                             ["algbw_gbps", "busbw_gbps", "bytes", "registration_used", "time_us", "wrong"])
            self.assertEqual((row["wrong"], row["registration_used"]), (0, "window"))

    def test_a_local_registration_is_used_where_nccl_can(self):
        result = run("allreduce", "--register", "local", "--bytes", "8M", "--check", "--json", ranks=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["rows"][0]["registration_used"], "local")

    def test_a_window_that_is_not_used_is_told(self):
        result = run("allreduce", "--register", "window", "--bytes", "8K")  # alone there is nobody to share it with
        self.assertEqual(result.returncode, 2)
        self.assertIn("not used", result.stderr)

    def test_impossible_combinations_are_refused_with_the_reason(self):
        for arguments, reason in (
            (["--backing", "cuda", "--register", "window"], "cudaMalloc"),
            (["--backing", "nccl", "--location", "host-numa"], "vmm backing"),
            (["--location", "host-numa", "--register", "window"], "2.30.3"),
        ):
            result = run("allreduce", "--bytes", "8K", *arguments)
            self.assertEqual(result.returncode, 3, arguments)
            self.assertIn("refused: ", result.stdout)
            self.assertIn(reason, result.stdout)

    def test_windows_need_nccl_2_27(self):
        result = run("allreduce", "--bytes", "8K", "--register", "window", COMMPOOL_EMULATOR="nccl=2.19.3")
        self.assertEqual(result.returncode, 3)
        self.assertIn("2.19.3", result.stdout)

    def test_bad_arguments_are_errors(self):
        for arguments in (["--bytes", "64M:8K"], ["--bytes", "much"], ["--backing", "gold"], ["--unknown"]):
            self.assertEqual(run("allreduce", *arguments).returncode, 4, arguments)

    def test_a_rank_without_a_gpu_is_told_so(self):
        result = run("allreduce", "--bytes", "8K", ranks=True, COMMPOOL_EMULATOR="devices=2")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("one rank a GPU", result.stderr)


class Record(unittest.TestCase):
    def test_appends_a_line_for_each_run(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "results.jsonl")
            for _ in range(2):
                run("allreduce", "--bytes", "8K", "--record", file)
            with open(file, encoding="utf-8") as lines:
                records = [json.loads(line) for line in lines]
        self.assertEqual(len(records), 2)
        self.assertEqual(sorted(records[0]), ["command", "date", "machine", "results"])
        self.assertIn("--bytes 8K", records[0]["command"])


class Help(unittest.TestCase):
    def test_every_subcommand_shows_an_example(self):
        for arguments in ([], ["info"], ["allreduce"], ["bench", "make"], ["bench", "hot"], ["bench", "threshold"],
                          ["replay"]):
            result = run(*arguments, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Example", result.stdout)


if __name__ == "__main__":
    unittest.main()
