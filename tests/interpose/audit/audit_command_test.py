"""`commpool audit` as a user meets it, on the emulator: what is counted, who asked, when reports come, bad input."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

import small_disk

_CLI = os.path.abspath("tools/cli/commpool")
_HERE = os.path.abspath("tests/interpose/audit")
_PROGRAM, _NEXT, _ARRAYS, _CUPTI, _DRIVER = (os.path.join(_HERE, name) for name in (
    "audited_program", "next.so", "stand_in_arrays.so", "stand_in_cupti.so", "stand_in_driver.so"))
_MIB = 1 << 20
_MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2"]
_IN_PYTHON = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
def allocate(mib):
    assert driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib << 20)) == 0
context = ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
allocate(20)
"""


class Audited:
    """A finished program: its exit code, output, and reports."""

    def __init__(self, command, options=(), launcher=(), emulated=True, preloaded=None, record=None, **variables):
        with tempfile.TemporaryDirectory() as folder:
            self.record = os.path.join(folder, "record.jsonl")
            with open(self.record, "w", encoding="utf-8"):
                pass
            command = [word.replace("RECORD", self.record) for word in command]
            emulate = [_CLI, "emulate", "--"] if emulated else []
            # In front of the emulator, which preloads itself.
            preload = ["sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', preloaded] if preloaded else []
            words = [*launcher, *emulate, *preload, _CLI, "audit", "--record", record or self.record, *options, "--",
                     *command]
            done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
            with open(self.record, encoding="utf-8") as file:
                self.reports = [json.loads(line) for line in file]
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def reasons(self):
        return [report["reason"] for report in self.reports]

    def row(self, library, what, device=0, report=-1):
        rows = self.reports[report]["rows"]
        found = [row for row in rows if (row["library"], row["what"], row["device"]) == (library, what, device)]
        if len(found) != 1:
            raise AssertionError(f"{library}, {what} on {device} stands {len(found)} times in {rows}\n{self.err}")
        return found[0]

    def device(self, number=0, report=-1):
        return next(device for device in self.reports[report]["devices"] if device["device"] == number)


def audit_program(*words, **options):
    return Audited([_PROGRAM, *words], **options)


class Case(unittest.TestCase):
    def check(self, row, **expected):
        self.assertEqual({key: row[key] for key in expected}, expected)

    def check_refusal(self, found, sentence, code=4):
        """3 is an answer, on stdout; 4 an error."""
        self.assertEqual(found.code, code, found.err)
        self.assertIn(sentence, found.out if code == 3 else found.err)


class Counted(Case):
    def test_what_a_program_that_links_the_driver_asks_for(self):
        found = audit_program("begin", "linked")
        self.check(found.row("the program", "memory"), made=2, ended=1, failed=0, bytes_made=96 * _MIB,
                   bytes_now=32 * _MIB, bytes_peak=96 * _MIB)
        self.assertGreater(found.row("the program", "memory")["made_ns"], 0)
        self.assertIn("the program", found.err)

    def test_an_emulator_that_is_asked_for_behind_it(self):
        found = Audited([_CLI, "emulate", "--", _PROGRAM, "begin", "linked"], emulated=False)
        self.check(found.row("the program", "memory"), made=2, bytes_now=32 * _MIB)

    def test_functions_that_were_looked_up(self):
        emulated = audit_program("begin", "looked-up", "libcuda.so.1")
        self.check(emulated.row("the program", "memory"), made=1, bytes_now=48 * _MIB)
        alone = audit_program("looked-up", _DRIVER)
        self.check(alone.row("the program", "memory", None), made=1, bytes_now=48 * _MIB)

    def test_whoever_asks_through_the_runtime(self):
        self.check(audit_program("runtime").row("the program", "memory"), made=1, bytes_now=16 * _MIB)

    def test_physical_memory_until_neither_handle_nor_mapping_is_left(self):
        mapped = audit_program("begin", "mapped")
        self.check(mapped.row("the program", "memory (VMM)"), made=1, ended=0, bytes_now=8 * _MIB)
        self.check(mapped.row("the program", "mappings"), made=1, bytes_now=8 * _MIB)
        unmapped = audit_program("begin", "unmapped")
        self.check(unmapped.row("the program", "memory (VMM)"), made=1, ended=1, bytes_now=0, bytes_peak=8 * _MIB)
        self.check(unmapped.row("the program", "mappings"), made=1, ended=1, bytes_now=0)
        self.check(unmapped.row("the program", "addresses", None), made=1, ended=1, bytes_now=0)
        self.check(unmapped.row("the program", "access"), made=1, bytes_made=8 * _MIB)

    def test_the_drivers_pools_as_what_they_hold(self):
        found = audit_program("begin", "pooled")
        self.check(found.row("the program", "in memory pools"), made=1, bytes_now=8 * _MIB)
        self.assertGreaterEqual(found.device()["in_driver_pools"], 8 * _MIB)

    def test_what_a_graph_that_allocates_asks_for(self):
        found = audit_program("begin", "in-graphs", preloaded=_ARRAYS)
        self.check(found.row("the program", "in graphs"), made=3, failed=0, bytes_made=12 * _MIB, bytes_now=0)
        self.assertEqual([row for row in found.reports[-1]["rows"] if row["what"] == "in memory pools"], [])
        self.check(found.device(), in_graphs=12 * _MIB, not_attributed=0)
        self.assertRegex(found.err, r"the driver +graphs' memory +0 .* 12 MiB ")

    def test_graphs_that_allocate_nothing_as_nothing(self):
        self.assertEqual(audit_program("begin", "pooled").device()["in_graphs"], 0)

    def test_arrays_as_what_the_driver_took_for_them(self):
        found = audit_program("begin", "arrays", preloaded=_ARRAYS)
        self.check(found.row("the program", "arrays"), made=3, ended=1, failed=0, bytes_made=30 * _MIB,
                   bytes_now=20 * _MIB, bytes_peak=30 * _MIB, device_memory=True)
        self.assertEqual(found.device()["not_attributed"], 0)

    def test_arrays_that_the_driver_refused(self):
        found = audit_program("begin", "refused-arrays", preloaded=_ARRAYS)
        self.check(found.row("the program", "arrays"), made=0, failed=2, bytes_now=0)
        self.assertEqual(found.reports[0]["reason"],
                         "out of memory: cuArray3DCreate_v2 of 4 PiB by the program on device 0")

    def test_nccls_memory_as_nccls_and_its_calls_as_the_callers(self):
        found = audit_program("begin", "registered")
        self.check(found.row("the program", "ncclMemAlloc"), made=1, ended=1, bytes_made=4 * _MIB, bytes_now=0)
        self.check(found.row("the program", "registrations"), made=1, ended=1, bytes_made=4 * _MIB)
        self.assertGreaterEqual(found.row("NCCL", "memory (VMM)")["bytes_peak"], 4 * _MIB)

    def test_commpools_memory_as_commpools(self):
        found = Audited([_CLI, "allreduce", "--backing", "vmm", "--bytes", "8K"])
        self.check(found.row("commpool", "memory (VMM)"), failed=0)
        self.check(found.row("commpool", "probes (VMM)"), made=0, failed=1)

    def test_all_that_a_device_has_given(self):
        found = audit_program("begin", "linked", "looked-up", "libcuda.so.1", "mapped", "pooled")
        device = found.device()
        self.assertGreaterEqual(device["used"], 96 * _MIB)
        self.assertEqual((device["attributed"], device["not_attributed"]), (device["used"], 0))

    def test_windows(self):
        found = Audited([_CLI, "allreduce", "--register", "window", "--bytes", "1M"], launcher=_MPIRUN)
        self.assertEqual(found.code, 0, found.err)
        for report in range(2):
            row = found.row("commpool", "windows", found.reports[report]["rank"], report=report)
            self.check(row, failed=0)
            self.assertGreaterEqual(row["made"], 1)


class Reports(unittest.TestCase):
    def test_name_their_rank(self):
        found = audit_program("begin", "linked", RANK="3", WORLD_SIZE="8")
        self.assertEqual((found.reports[0]["rank"], found.reports[0]["ranks"]), (3, 8))
        self.assertRegex(found.err, r"commpool audit: rank 3 of 8, process \d+ \(audited_program\): exit")

    def test_come_once_for_each_rank_under_mpirun(self):
        found = audit_program("begin", "linked", launcher=_MPIRUN)
        self.assertEqual(sorted(report["rank"] for report in found.reports), [0, 1])

    def test_come_on_a_signal(self):
        found = audit_program("begin", "linked", "signal", "RECORD")
        self.assertEqual(found.reasons(), ["signal User defined signal 2", "exit"])

    def test_come_before_a_signal_ends_the_process(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT):
            found = audit_program("begin", "linked", "ends-by", str(int(number)))
            expected = [f"signal {signal.strsignal(number)}"], -number
            self.assertEqual((found.reasons(), found.code), expected, found.err)

    def test_do_not_come_from_a_fork_that_a_signal_ends(self):
        found = audit_program("begin", "linked", "ends-a-child")
        self.assertEqual((found.reasons(), found.code), (["exit"], 0))

    def test_come_where_a_device_holds_more_than_the_limit(self):
        found = audit_program("begin", "linked", "linked", options=["--limit", "80M"])
        self.assertEqual(found.reasons(), ["device 0 is over the limit"] * 2 + ["exit"])
        self.assertEqual(found.row("the program", "memory", report=0)["bytes_now"], 96 * _MIB)
        self.assertEqual(audit_program("begin", "linked", options=["--limit", "160G"]).reasons(), ["exit"])

    def test_come_when_memory_first_runs_out(self):
        found = audit_program("begin", "out-of-memory")
        self.assertEqual(found.reasons(), ["out of memory: cuMemAlloc_v2 of 1 PiB by the program on device 0", "exit"])
        self.assertEqual(found.row("the program", "memory")["failed"], 2)

    def test_come_where_the_program_asks(self):
        self.assertEqual(audit_program("begin", "linked", "report").reasons(), ["step 1", "exit"])

    def test_do_not_come_from_a_fork(self):
        self.assertEqual(len(audit_program("begin", "linked", "fork").reports), 1)

    def test_come_from_a_fork_whose_parent_used_no_cuda(self):
        found = audit_program("in-a-fork", "begin", "linked")
        self.assertEqual((found.reasons(), found.code), (["exit"], 0), found.err)
        self.assertEqual(found.row("the program", "memory")["made"], 2)
        number = signal.SIGTERM
        found = audit_program("in-a-fork", "begin", "linked", "ends-by", str(int(number)))
        self.assertEqual(found.reasons(), [f"signal {signal.strsignal(number)}"], found.err)
        found = audit_program("in-a-fork", "begin", "linked", "fork")
        self.assertEqual(found.reasons(), ["exit"], found.err)
        self.assertNotIn("commpool audit", audit_program("in-a-fork").err)

    def test_show_where_python_asked(self):
        found = Audited([sys.executable, "-c", _IN_PYTHON], options=["--python-stacks"])
        stacks = found.reports[-1]["stacks"]
        self.assertEqual([(stack["library"], stack["bytes_now"], stack["stack"]) for stack in stacks],
                         [("the program", 20 * _MIB, "<string>:5 allocate\n<string>:10 <module>")])

    def test_cannot_be_recorded_where_nothing_can_be_written(self):
        for place, why in (("/nowhere/record", "No such file or directory"), ("/dev/full", "No space left on device")):
            found = audit_program("begin", "linked", record=place)
            self.assertEqual(found.code, 0)
            self.assertIn(f"cannot write {place}: {why}", found.err)
            self.assertIn("the program            memory", found.err)

    def test_say_that_a_disk_has_room_for_a_part_of_the_record_alone(self):
        page = os.sysconf("SC_PAGESIZE")
        fill = (f'mount -t tmpfs -o size={page} none "$0" && head -c {page - 196} /dev/zero > "$0/record" && '
                'exec "$@"')
        unshare = small_disk.may_mount(self)
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            found = audit_program("begin", "linked", record=record, launcher=[*unshare, "sh", "-c", fill, folder])
        self.assertEqual(found.code, 0)
        self.assertIn(f"cannot write {record}: No space left on device", found.err)


class Cupti(Case):
    def inject(self, *words, options=(), **variables):
        return audit_program(*words, options=["--cupti", _CUPTI, *options], **variables)

    def test_has_the_books_where_it_can(self):
        found = self.inject("begin", "inject", "linked", STAND_IN_CUPTI=_CUPTI)
        self.check(found.row("stand_in_cupti.so", "memory"), made=2, ended=1, bytes_now=40 * _MIB)
        self.assertEqual(found.reports[-1]["seen"], "by CUPTI's callbacks, NCCL by a preload")
        self.assertFalse([row for row in found.reports[-1]["rows"]
                          if (row["library"], row["what"]) == ("the program", "memory")], "counted twice")

    def test_counts_arrays_and_graphs_too(self):
        found = self.inject("begin", "inject-arrays", STAND_IN_CUPTI=_CUPTI, preloaded=_ARRAYS)
        self.check(found.row("stand_in_cupti.so", "arrays"), made=2, ended=1, bytes_made=30 * _MIB, bytes_now=20 * _MIB)
        self.check(found.row("stand_in_cupti.so", "in graphs"), made=1, bytes_made=4 * _MIB)
        self.check(found.device(), in_graphs=4 * _MIB)

    def test_with_another_subscriber_leaves_them_to_the_preload(self):
        found = self.inject("begin", "inject", "linked", STAND_IN_CUPTI_IS_TAKEN="1")
        self.assertEqual(found.row("the program", "memory")["made"], 2)
        self.assertIn("by a preload (another tool has subscribed to CUPTI, which takes one)", found.err)

    def test_that_is_not_there_is_said(self):
        found = audit_program("begin", "inject", "linked", options=["--cupti", "/nowhere/libcupti.so"])
        self.assertEqual(found.row("the program", "memory")["made"], 2)
        self.assertIn("by a preload (there is no /nowhere/libcupti.so; --cupti names its file)", found.err)

    def test_is_left_alone_where_a_preload_is_asked_for(self):
        found = audit_program("begin", "linked", options=["--by", "preload"], CUDA_INJECTION64_PATH="")
        self.assertEqual(found.reports[-1]["seen"], "by a preload")


class Programs(Case):
    def test_end_as_without_an_audit(self):
        self.assertEqual(audit_program("seven").code, 7)

    def test_that_use_no_driver_say_so(self):
        found = Audited([sys.executable, "-c", "pass"], emulated=False)
        self.assertEqual((found.code, found.reports), (0, []))
        self.assertIn("this process asked for no memory of a device", found.err)

    def test_that_only_start_others_are_silent(self):
        program = "import subprocess; subprocess.run(['true'], check=True)"
        found = Audited([sys.executable, "-c", program], emulated=False)
        self.assertNotIn("python", found.err)

    def test_without_a_gpu_say_so(self):
        found = Audited([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"],
                        CUDA_VISIBLE_DEVICES="-1")
        self.assertIn("this process has no GPU: cuInit failed: CUDA_ERROR_NO_DEVICE (100)", found.err)

    def test_that_look_up_the_next_function_of_a_name_find_theirs(self):
        found = audit_program("parent", LD_PRELOAD=_NEXT)
        self.assertGreater(int(found.out), 1000000)

    def test_that_do_not_exist_are_an_error(self):
        self.check_refusal(Audited(["no-such-program"], emulated=False),
                           "commpool audit: cannot start no-such-program: there is no such program")

    def test_that_cannot_be_executed_are_an_error_that_says_why(self):
        with tempfile.NamedTemporaryFile() as file:
            for program, why in ((file.name, "may not be executed"), ("/tmp", "it is a folder")):
                self.check_refusal(Audited([program], emulated=False), why)

    def test_options_that_it_does_not_know_are_an_error(self):
        self.check_refusal(Audited(["true"], options=["--bogus"], emulated=False), "there is no option --bogus")

    def test_that_are_to_be_below_no_limit_are_an_error(self):
        self.check_refusal(Audited(["true"], options=["--limit", "0"], emulated=False), "--limit 0 is none")

    def test_that_are_not_named_are_an_error(self):
        self.check_refusal(Audited([], emulated=False), "say which program")

    def test_whose_record_has_a_comma_are_refused_by_name(self):
        self.check_refusal(audit_program("seven", record="a,b"), "a,b has a comma")


class Unfit(Case):
    """Programs into which nothing can be preloaded: refused before they start."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(folder.name, 0o755)

    def check_unfit(self, program, reason):
        self.check_refusal(Audited([program], emulated=False), reason, code=3)

    def write_script(self, text):
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(script, 0o755)
        return script

    def make_setuid(self):
        program = os.path.join(self.folder, "setuid")
        shutil.copy("/bin/true", program)
        try:
            os.chown(program, 12345, -1)
        except PermissionError:
            self.skipTest("only root gives a file to another user")
        os.chmod(program, 0o755 | stat.S_ISUID)
        return program

    def test_setuid(self):
        program = self.make_setuid()
        self.check_unfit(program, f"{program} runs with more rights than its user has")

    def test_a_script_by_its_interpreter(self):
        interpreter = self.make_setuid()
        self.check_unfit(self.write_script(f"#!{interpreter}\n"), f"{interpreter} runs with more rights")

    def test_no_script_whose_env_has_options_and_settings(self):
        for line in ("-S sh -u", "-S A=1 sh", "-S -i A=1 sh"):
            with self.subTest(line=line):
                script = self.write_script(f"#!/usr/bin/env {line}\nexit 7\n")
                alone = subprocess.run([script], check=False, capture_output=True).returncode
                self.assertEqual(Audited([script], emulated=False).code, alone)

    def test_statically_linked(self):
        program = os.path.join(self.folder, "static")
        source = "int main(void) { return 0; }"
        subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        self.check_unfit(program, f"{program} is linked statically")
