"""The CLI as a user meets it, on the emulator: exit codes, JSON, records."""

import json
import os
import subprocess
import tempfile
import unittest

import cli
import subcommands

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

    def test_draws_links_and_nodes_of_two_islands(self):
        result = run("info", COMMPOOL_EMULATOR="machine=islands")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\n +3  =0  =0  =0   \\   \.   \.   \.   \.  host 0\n")
        self.assertRegex(result.stdout, r"\n +4   \.   \.   \.   \.   \\  =0  =0  =0  host 1\n")

    def test_names_the_nodes_of_coherent_devices(self):
        first = json.loads(run("info", "--json", COMMPOOL_EMULATOR="machine=grace").stdout)["devices"][0]
        self.assertEqual((first["host_numa_node"], first["own_numa_node"], first["coherent"]), (0, 2, True))
        self.assertEqual(first["links"][0], {"to": 1, "is": "atomics", "rank": 0})
        self.assertIn("host 0, its own 2, uses the host's pages", run("info", COMMPOOL_EMULATOR="machine=grace").stdout)

    def test_draws_no_links_where_there_are_none(self):
        self.assertRegex(run("info", COMMPOOL_EMULATOR="machine=apart").stdout, r"\n +0   \\   \.   \.   \.  host 0\n")
        self.assertRegex(run("info", COMMPOOL_EMULATOR="machine=one").stdout, r"\n +0   \\  host 0\n")

    def test_says_what_the_environment_sets_and_where_it_came_from(self):
        info = run("info", "--json", COMMPOOL_CONF="gradients.limit:2GiB,pooled")
        settings = json.loads(info.stdout)["configuration"]
        self.assertIn({"pool": "gradients", "key": "limit", "value": "2GiB",
                       "source": "COMMPOOL_CONF gradients.limit:2GiB"}, settings)
        self.assertIn({"pool": "", "key": "segment", "value": "256MiB", "source": "COMMPOOL_CONF pooled"}, settings)
        self.assertIn({"pool": "", "key": "deadline", "value": "60s", "source": "default"}, settings)
        table = run("info", COMMPOOL_CONF="gradients.limit:2GiB").stdout
        self.assertRegex(table, r"gradients\.limit +2GiB +COMMPOOL_CONF gradients\.limit:2GiB")

    def test_takes_names_that_are_no_utf8(self):
        result = run("info", "--json", COMMPOOL_CONF=os.fsdecode(b"grad\xffients.limit:2GiB"))
        self.assertEqual(result.returncode, 0, result.stderr)
        pools = {setting["pool"] for setting in json.loads(result.stdout)["configuration"]}
        self.assertTrue([pool for pool in pools if pool.startswith("grad")], pools)

    def test_fails_where_nothing_takes_what_it_says(self):
        for line in (["info"], ["info", "--json"], ["--help"]):
            with self.subTest(line=line), open("/dev/full", "w") as full:
                environment = {**os.environ, "COMMPOOL_DRIVER": "emulated"}
                result = subprocess.run([_CLI, *line], env=environment, stdout=full, stderr=subprocess.PIPE, text=True,
                                        timeout=120)
                self.assertEqual(result.returncode, 4, result.stderr)
                self.assertIn("commpool: cannot write to stdout: No space left on device", result.stderr)
        result = run("info", "--record", "/dev/full")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("cannot write /dev/full", result.stderr)

    def test_says_what_to_do_without_a_driver(self):
        result = run("info", COMMPOOL_DRIVER="cuda", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(result.returncode, 4)
        self.assertIn("commpool emulate -- PROGRAM", result.stderr)


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
            (["--backing", "nccl", "--location", "host-numa"], "needs one of vmm, pinned"),
            (["--location", "host-numa", "--register", "window"], "2.30.3"),
        ):
            result = run("allreduce", "--bytes", "8K", *arguments)
            self.assertEqual(result.returncode, 3, arguments)
            self.assertIn("refused: ", result.stdout)
            self.assertIn(reason, result.stdout)

    def test_windows_of_host_memory_serve_no_collective(self):
        result = run("allreduce", "--location", "host-numa", "--register", "window", "--bytes", "8K",
                     COMMPOOL_EMULATOR="nccl=2.30.7")
        self.assertEqual(result.returncode, 3)
        self.assertIn("no collective of NCCL uses a window of host memory", result.stdout)

    def test_windows_need_nccl_2_27(self):
        result = run("allreduce", "--bytes", "8K", "--register", "window", COMMPOOL_EMULATOR="nccl=2.19.3")
        self.assertEqual(result.returncode, 3)
        self.assertIn("2.19.3", result.stdout)

    def test_bad_arguments_are_errors(self):
        for arguments in (["--bytes", "64M:8K"], ["--bytes", "much"], ["--backing", "gold"], ["--unknown"],
                          ["--backing", "1"], ["--iterations", "0"], ["--iterations", "-3"], ["--iterations", "few"]):
            self.assertEqual(run("allreduce", *arguments).returncode, 4, arguments)

    def test_a_word_that_is_none_of_the_known_ones_is_told_with_them(self):
        self.assertIn("gold is none of cuda|nccl|pinned|vmm", run("allreduce", "--backing", "gold").stderr)

    def test_a_local_registration_that_was_not_used_says_why(self):
        for arguments, options, reason in (
            (["--bytes", "8K"], {}, "nobody to send to"),
            (["--bytes", "8K"], {"ranks": True}, "protocol SIMPLE alone"),
            (["--bytes", "8M", "--backing", "cuda"], {"ranks": True}, "NCCL_LEGACY_CUDA_REGISTER=1"),
        ):
            result = run("allreduce", "--register", "local", *arguments, **options)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("local was asked for and not used", result.stderr)
            self.assertIn(reason, result.stderr)

    def test_a_local_registration_that_was_used_needs_no_word(self):
        result = run("allreduce", "--register", "local", "--bytes", "8M", ranks=True)
        self.assertNotIn("not used", result.stderr)

    def test_one_rank_is_one(self):
        self.assertIn("# 1 rank, ", run("allreduce", "--bytes", "8K").stdout)
        self.assertIn("# 4 ranks, ", run("allreduce", "--bytes", "8K", ranks=True).stdout)

    def test_a_rank_without_a_gpu_is_told_so(self):
        result = run("allreduce", "--bytes", "8K", ranks=True, COMMPOOL_EMULATOR="devices=2")
        self.assertEqual(result.returncode, 4)
        said = [line for line in result.stderr.splitlines() if line.startswith(("commpool ", "NCCL "))]
        self.assertEqual(said, ["commpool allreduce: rank 2 has no GPU of its own: there are 2 on its host; "
                                "start one rank a GPU"])


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

    def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(self):
        result = run("allreduce", "--bytes", "8K", "--record", "/nowhere/results.jsonl")
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot write /nowhere/results.jsonl: No such file or directory", result.stderr)
        self.assertEqual(result.stdout, "")


class CommandLine(unittest.TestCase):
    def test_tells_its_version_and_the_librarys(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        version = r"\d+[.]\d+[.]\d+"
        self.assertRegex(result.stdout, rf"^commpool {version}, library {version}\n$")

    def test_an_unknown_subcommand_is_named_with_those_that_there_are(self):
        for arguments, words in (([], "there is no foo, the nearest is info; there are info, allreduce, "),
                                 (["bench"], "there is no foo, the nearest is hot; there are growth, hot, ")):
            result = run(*arguments, "foo")
            self.assertEqual(result.returncode, 4)
            self.assertIn(words, result.stderr)

    def test_no_subcommand_is_answered_with_those_that_there_are(self):
        for arguments, words in (([], "commpool: say what to do; there are info, "),
                                 (["bench"], "bench: say what to do; there are growth, ")):
            result = run(*arguments)
            self.assertEqual(result.returncode, 4)
            self.assertIn(words, result.stderr)

    def test_wrong_variables_are_refused_with_the_known_values(self):
        for variable, words in (("COMMPOOL_LOG", "error, warning, info or debug"),
                                ("COMMPOOL_DRIVER", "cuda, emulated or auto"),
                                ("COMMPOOL_INTERFACE", "name an interface of this host"),
                                ("COMMPOOL_CONF", "the known ones are backing, mode, moves, grants, limit"),
                                ("COMMPOOL_EMULATOR", "devices")):
            result = run("info", **{variable: "foo"})
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stderr, variable)


class OnATerminal(unittest.TestCase):
    def test_long_work_says_how_far_it_is_and_clears_the_line(self):
        one_round = ["--rounds", "1", "--round-ms", "0.01"]
        for arguments, words in ((["allreduce", "--bytes", "8K:16K"], "row 1 of 2: 16 KiB"),
                                 (["allreduce", "--bytes", "8K:16K", "--compare", "by-hand"], "2: 16 KiB beside"),
                                 (["allreduce", "--bytes", "8K", "--compare", "scopes"], "row 1 of 2: 8 KiB in scopes"),
                                 (["bench", "hot", "--sizes", "512", "--live", "1", "--threads", "1", *one_round],
                                  "round 1 of 2: "),
                                 (["bench", "registration", "--tensors", "1", "--steps", "2"], "step 1 of 2")):
            text = cli.stderr_on_a_terminal(*arguments)
            self.assertIn(words, text)
            self.assertTrue(text.endswith("\r\033[K"), repr(text))

    def test_a_file_gets_no_such_line(self):
        self.assertEqual(run("allreduce", "--bytes", "8K").stderr, "")


class Quickstart(unittest.TestCase):
    def test_its_program_runs_the_main_job(self):
        program = os.path.abspath("tools/cli/quickstart")
        environment = {**os.environ, "COMMPOOL_DRIVER": "emulated"}
        result = subprocess.run([*_RANKS, program, "allreduce", "--register", "window", "--bytes", "8K", "--check"],
                                env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("window", result.stdout.splitlines()[-1])


class Emulate(unittest.TestCase):
    def test_starts_the_program_with_its_arguments_and_takes_its_exit_code(self):
        script = 'echo "$1 $2"; exit 7'
        result = run("emulate", "--", "sh", "-c", script, "name", "--of=mine", "--", COMMPOOL_DRIVER="auto")
        self.assertEqual((result.returncode, result.stdout), (7, "--of=mine --\n"))

    def test_says_when_operations_of_torch_run(self):
        for declared, wanted in (("", "kernels=none"), ("devices=2", "devices=2,kernels=none")):
            result = run("emulate", "--kernels", "none", "--", "sh", "-c", "echo $COMMPOOL_EMULATOR",
                         COMMPOOL_EMULATOR=declared)
            self.assertEqual((result.returncode, result.stdout), (0, wanted + "\n"), result.stderr)
        self.assertIn("later|now|none", run("emulate", "--kernels", "never", "--", "true").stderr)

    def test_a_program_opens_the_emulated_libraries_by_their_usual_names(self):
        script = ("import ctypes; version = ctypes.c_int(); count = ctypes.c_int(); "
                  "cuda = ctypes.CDLL('libcuda.so.1'); "
                  "runtime = ctypes.CDLL('libcudart.so.13'); runtime.cudaSetDevice(2); "
                  "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value, "
                  "ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(version)), version.value, "
                  "runtime.cudaGetDevice(ctypes.byref(count)), count.value)")
        result = run("emulate", "--", "python3", "-c", script, COMMPOOL_EMULATOR="devices=3")
        self.assertEqual((result.returncode, result.stdout), (0, "0 0 3 0 22809 0 2\n"), result.stderr)

    def test_commpool_in_the_program_is_on_the_emulator_too(self):
        result = run("emulate", "--", _CLI, "info", "--json", COMMPOOL_DRIVER="cuda")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("emulated", json.loads(result.stdout)["driver"])

    def test_a_program_that_cannot_be_started_is_told(self):
        for arguments, words in (([], "say which program"), (["--"], "say which program"),
                                 (["--", "/nowhere"], "cannot start /nowhere: No such file")):
            result = run("emulate", *arguments)
            self.assertEqual(result.returncode, 4)
            self.assertIn(words, result.stderr)


_BENCHES = ("growth", "hot", "memory", "sleep", "registration", "agreement")


class EverySubcommand(subcommands.Checks, unittest.TestCase):
    program = cli.CLI
    commands = (["info"], ["allreduce"], ["advise"], ["audit"], ["run"], ["replay"], ["share"], ["import"], ["report"],
                *(["bench", name] for name in _BENCHES))
    only_help = ([], ["bench"], ["emulate"])

    def test_choices_are_words(self):
        self.assertIn("--register local|none|window", run("allreduce", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
