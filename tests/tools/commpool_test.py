"""The CLI as a user meets it, on the emulator: exit codes, JSON, records."""

import json
import os
import pathlib
import tempfile

import cli
import subcommands


class Info(cli.CommandTest):
    def test_names_devices_and_says_why_a_backing_cannot(self):
        info = self.report("info", COMMPOOL_EMULATOR="devices=2")
        self.assertEqual([device["reaches"] for device in info["devices"]], [[1], [0]])
        refused = [row for row in info["backings"] if not row["make"]["available"]]
        self.assertTrue(refused)
        self.assertTrue(all(row["make"]["reason"] for row in refused), refused)

    def test_draws_links_and_nodes_of_two_islands(self):
        result = self.ends(0, "info", COMMPOOL_EMULATOR="machine=islands")
        self.assertRegex(result.stdout, r"\n +3  =0  =0  =0   \\   \.   \.   \.   \.  host 0\n")
        self.assertRegex(result.stdout, r"\n +4   \.   \.   \.   \.   \\  =0  =0  =0  host 1\n")

    def test_names_the_nodes_of_coherent_devices(self):
        first = self.report("info", COMMPOOL_EMULATOR="machine=grace")["devices"][0]
        self.assertEqual((first["host_numa_node"], first["own_numa_node"], first["coherent"]), (0, 2, True))
        self.assertEqual(first["links"][0], {"to": 1, "is": "atomics", "rank": 0})
        table = self.ends(0, "info", COMMPOOL_EMULATOR="machine=grace").stdout
        self.assertIn("host 0, its own 2, uses the host's pages", table)

    def test_draws_no_links_where_there_are_none(self):
        for machine, row in (("apart", r"\n +0   \\   \.   \.   \.  host 0\n"), ("one", r"\n +0   \\  host 0\n")):
            self.assertRegex(self.ends(0, "info", COMMPOOL_EMULATOR=f"machine={machine}").stdout, row)

    def test_says_what_the_environment_sets_and_where_it_came_from(self):
        settings = self.report("info", COMMPOOL_CONF="gradients.limit:2GiB,pooled")["configuration"]
        self.assertIn({"pool": "gradients", "key": "limit", "value": "2GiB",
                       "source": "COMMPOOL_CONF gradients.limit:2GiB"}, settings)
        self.assertIn({"pool": "", "key": "segment", "value": "256MiB", "source": "COMMPOOL_CONF pooled"}, settings)
        self.assertIn({"pool": "", "key": "deadline", "value": "60s", "source": "default"}, settings)
        table = cli.run("info", COMMPOOL_CONF="gradients.limit:2GiB").stdout
        self.assertRegex(table, r"gradients\.limit +2GiB +COMMPOOL_CONF gradients\.limit:2GiB")

    def test_takes_names_that_are_no_utf8(self):
        info = self.report("info", COMMPOOL_CONF=os.fsdecode(b"grad\xffients.limit:2GiB"))
        pools = {setting["pool"] for setting in info["configuration"]}
        self.assertTrue([pool for pool in pools if pool.startswith("grad")], pools)

    def test_fails_where_nothing_takes_what_it_says(self):
        for line in ("info", "info --json", "--help"):
            with self.subTest(line=line):
                self.refuses(4, "commpool: cannot write to stdout: No space left on device",
                             "-c", f"{cli.CLI} {line} >/dev/full", program="sh")
        self.refuses(4, "cannot write /dev/full", "info", "--record", "/dev/full")

    def test_says_what_to_do_without_a_driver(self):
        self.refuses(4, "commpool emulate -- PROGRAM", "info", COMMPOOL_DRIVER="cuda", CUDA_VISIBLE_DEVICES="")
        self.refuses(4, "does CUDA_VISIBLE_DEVICES hide every device", "info", CUDA_VISIBLE_DEVICES="")


class AllReduce(cli.CommandTest):
    def test_four_ranks_agree_on_right_sums_in_windows(self):
        report = self.report("allreduce", "--register", "window", "--bytes", "8K:1M", "--check", ranks=4)
        self.assertEqual(sorted(report), ["backing", "driver", "location", "ranks", "registration_asked", "rows"])
        self.assertEqual(report["ranks"], 4)
        self.assertEqual([row["bytes"] for row in report["rows"]], [8192 << shift for shift in range(8)])
        for row in report["rows"]:
            self.assertEqual(sorted(row),
                             ["algbw_gbps", "busbw_gbps", "bytes", "registration_used", "time_us", "wrong"])
            self.assertEqual((row["wrong"], row["registration_used"]), (0, "window"))

    def test_a_local_registration_is_used_where_nccl_can(self):
        report = self.report("allreduce", "--register", "local", "--bytes", "8M", "--check", ranks=4)
        self.assertEqual(report["rows"][0]["registration_used"], "local")

    def test_a_window_that_is_not_used_is_told(self):
        # Alone there is nobody to share it with.
        self.refuses(2, "not used", "allreduce", "--register", "window", "--bytes", "8K")

    def test_impossible_combinations_are_refused_with_the_reason(self):
        for arguments, reason in (("--backing cuda --register window", "cudaMalloc"),
                                  ("--backing nccl --location host-numa", "needs one of vmm, pinned"),
                                  ("--location host-numa --register window", "2.30.3")):
            said = self.ends(3, "allreduce", "--bytes", "8K", *arguments.split()).stdout
            self.assertIn("refused: ", said)
            self.assertIn(reason, said)

    def test_windows_of_host_memory_serve_no_collective(self):
        self.refuses(3, "no collective of NCCL uses a window of host memory", "allreduce", "--location", "host-numa",
                     "--register", "window", "--bytes", "8K", COMMPOOL_EMULATOR="nccl=2.30.7")

    def test_windows_need_nccl_2_27(self):
        self.refuses(3, "2.19.3", "allreduce", "--bytes", "8K", "--register", "window", COMMPOOL_EMULATOR="nccl=2.19.3")

    def test_a_host_without_memory_for_the_bytes_says_so(self):
        limited = 'ulimit -d 1000000 && exec "$0" allreduce --bytes 1G'
        self.refuses(4, "rank 0: the host has no memory for 1 GiB", "-c", limited, cli.CLI, program="sh")

    def test_bad_arguments_are_errors(self):
        self.each_ends(4, "allreduce", "--bytes 64M:8K", "--bytes much", "--backing gold", "--unknown", "--backing 1",
                       "--iterations 0", "--iterations -3", "--iterations few")

    def test_a_word_that_is_none_of_the_known_ones_is_told_with_them(self):
        self.refuses(4, "gold is none of cuda|nccl|pinned|vmm", "allreduce", "--backing", "gold")

    def test_a_local_registration_that_was_not_used_says_why(self):
        for arguments, ranks, reason in (("--bytes 8K", None, "nobody to send to"),
                                         ("--bytes 8K", 4, "protocol SIMPLE alone"),
                                         ("--bytes 8M --backing cuda", 4, "NCCL_LEGACY_CUDA_REGISTER=1")):
            said = self.ends(0, "allreduce", "--register", "local", *arguments.split(), ranks=ranks).stderr
            self.assertIn("local was asked for and not used", said)
            self.assertIn(reason, said)

    def test_a_local_registration_that_was_used_needs_no_word(self):
        said = self.ends(0, "allreduce", "--register", "local", "--bytes", "8M", ranks=4).stderr
        self.assertNotIn("not used", said)

    def test_one_rank_is_one(self):
        self.assertIn("# 1 rank, ", cli.run("allreduce", "--bytes", "8K").stdout)
        self.assertIn("# 4 ranks, ", cli.run("allreduce", "--bytes", "8K", ranks=4).stdout)

    def test_a_rank_without_a_gpu_is_told_so(self):
        result = self.ends(4, "allreduce", "--bytes", "8K", ranks=4, COMMPOOL_EMULATOR="devices=2")
        said = [line for line in result.stderr.splitlines() if line.startswith(("commpool ", "NCCL "))]
        self.assertEqual(said, ["commpool allreduce: rank 2 has no GPU of its own among the 2 that it sees; "
                                "start one rank a GPU"])

    def test_ranks_may_see_their_own_gpu_alone_but_not_all_the_same(self):
        own = 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$0" "$@"'
        self.ends(0, "-c", own, cli.CLI, "allreduce", "--bytes", "8K", ranks=2, program="sh")
        self.refuses(4, "rank 1 has no GPU of its own", "allreduce", "--bytes", "8K", ranks=2, CUDA_VISIBLE_DEVICES="1")


class Record(cli.CommandTest):
    def test_appends_a_line_for_each_run(self):
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "results.jsonl")
        for _ in range(2):
            self.ends(0, "allreduce", "--bytes", "8K", "--record", str(file))
        first, _ = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        self.assertEqual(sorted(first), ["command", "date", "machine", "results"])
        self.assertIn("--bytes 8K", first["command"])

    def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(self):
        result = self.ends(4, "allreduce", "--bytes", "8K", "--record", "/nowhere/results.jsonl")
        self.assertIn("cannot write /nowhere/results.jsonl: No such file or directory", result.stderr)
        self.assertEqual(result.stdout, "")


class CommandLine(cli.CommandTest):
    def test_tells_its_version_and_the_librarys(self):
        version = r"\d+[.]\d+[.]\d+"
        self.assertRegex(self.ends(0, "--version").stdout, rf"^commpool {version}, library {version}\n$")

    def test_an_unknown_subcommand_is_named_with_those_that_there_are(self):
        self.refuses(4, "there is no foo, the nearest is info; there are info, allreduce, ", "foo")
        self.refuses(4, "there is no foo, the nearest is hot; there are growth, hot, ", "bench", "foo")

    def test_no_subcommand_is_answered_with_those_that_there_are(self):
        self.refuses(4, "commpool: say what to do; there are info, ")
        self.refuses(4, "bench: say what to do; there are growth, ", "bench")

    def test_wrong_variables_are_refused_with_the_known_values(self):
        for variable, words in (("COMMPOOL_LOG", "error, warning, info or debug"),
                                ("COMMPOOL_DRIVER", "cuda, emulated or auto"),
                                ("COMMPOOL_INTERFACE", "name an interface of this host"),
                                ("COMMPOOL_CONF", "the known ones are backing, mode, moves, grants, limit"),
                                ("COMMPOOL_EMULATOR", "devices")):
            result = cli.run("info", **{variable: "foo"})
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stderr, variable)


class OnATerminal(cli.CommandTest):
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
        self.assertEqual(cli.run("allreduce", "--bytes", "8K").stderr, "")


class Quickstart(cli.CommandTest):
    def test_its_program_runs_the_main_job(self):
        result = self.ends(0, "allreduce", "--register", "window", "--bytes", "8K", "--check", ranks=4,
                           program=os.path.abspath("tools/cli/quickstart"))
        self.assertIn("window", result.stdout.splitlines()[-1])


class Emulate(cli.CommandTest):
    def test_starts_the_program_with_its_arguments_and_takes_its_exit_code(self):
        script = 'echo "$1 $2"; exit 7'
        result = self.ends(7, "emulate", "--", "sh", "-c", script, "name", "--of=mine", "--", COMMPOOL_DRIVER="auto")
        self.assertEqual(result.stdout, "--of=mine --\n")

    def test_leaves_a_program_without_dashes_before_it_its_own(self):
        for options in ((), ("--kernels", "none")):
            self.assertEqual(self.ends(0, "emulate", *options, "echo", "a", "--", "b").stdout, "a -- b\n")

    def test_says_when_operations_of_torch_run(self):
        for declared, wanted in (("", "kernels=none"), ("devices=2", "devices=2,kernels=none")):
            result = cli.run("emulate", "--kernels", "none", "--", "sh", "-c", "echo $COMMPOOL_EMULATOR",
                             COMMPOOL_EMULATOR=declared)
            self.assertEqual((result.returncode, result.stdout), (0, wanted + "\n"), result.stderr)
        self.assertIn("later|now|none", cli.run("emulate", "--kernels", "never", "--", "true").stderr)

    def test_a_program_opens_the_emulated_libraries_by_their_usual_names(self):
        script = ("import ctypes; version = ctypes.c_int(); count = ctypes.c_int(); "
                  "cuda = ctypes.CDLL('libcuda.so.1'); "
                  "runtime = ctypes.CDLL('libcudart.so.13'); runtime.cudaSetDevice(2); "
                  "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value, "
                  "ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(version)), version.value, "
                  "runtime.cudaGetDevice(ctypes.byref(count)), count.value)")
        result = cli.run("emulate", "--", "python3", "-c", script, COMMPOOL_EMULATOR="devices=3")
        self.assertEqual((result.returncode, result.stdout), (0, "0 0 3 0 22809 0 2\n"), result.stderr)

    def test_commpool_in_the_program_is_on_the_emulator_too(self):
        self.assertIn("emulated", self.report("emulate", "--", cli.CLI, "info", COMMPOOL_DRIVER="cuda")["driver"])

    def test_a_program_that_cannot_be_started_is_told(self):
        self.refuses(4, "say which program", "emulate")
        self.refuses(4, "say which program", "emulate", "--")
        self.refuses(4, "cannot start /nowhere: No such file", "emulate", "--", "/nowhere")


_BENCHES = ("growth", "hot", "memory", "sleep", "registration", "agreement")


class EverySubcommand(subcommands.Checks, cli.CommandTest):
    program = cli.CLI
    commands = (["info"], ["allreduce"], ["advise"], ["audit"], ["run"], ["replay"], ["share"], ["import"], ["report"],
                *(["bench", name] for name in _BENCHES))
    only_help = ([], ["bench"], ["emulate"])

    def test_choices_are_words(self):
        self.assertIn("--register local|none|window", cli.run("allreduce", "--help").stdout)
