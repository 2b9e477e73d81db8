"""`commpool audit` as a user meets it, on the emulator: what is counted, who asked, when reports come, bad input."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

import audited
import small_disk
from audited import MIB, Audited, audit_program

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


class Counted(unittest.TestCase):
    def check(self, row, **expected):
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_what_a_program_that_links_the_driver_asks_for(self):
        found = audit_program("begin", "linked")
        self.check(found.row("the program", "memory"), made=2, ended=1, failed=0, bytes_made=96 * MIB,
                   bytes_now=32 * MIB, bytes_peak=96 * MIB)
        self.assertGreater(found.row("the program", "memory")["made_ns"], 0)
        self.assertIn("the program", found.err)

    def test_functions_that_were_looked_up(self):
        emulated = audit_program("begin", "looked-up", "libcuda.so.1")
        self.check(emulated.row("the program", "memory"), made=1, bytes_now=48 * MIB)
        alone = audit_program("looked-up", audited.DRIVER)
        self.check(alone.row("the program", "memory", None), made=1, bytes_now=48 * MIB)

    def test_whoever_asks_through_the_runtime(self):
        self.check(audit_program("runtime").row("the program", "memory"), made=1, bytes_now=16 * MIB)

    def test_physical_memory_until_neither_handle_nor_mapping_is_left(self):
        mapped = audit_program("begin", "mapped")
        self.check(mapped.row("the program", "memory (VMM)"), made=1, ended=0, bytes_now=8 * MIB)
        self.check(mapped.row("the program", "mappings"), made=1, bytes_now=8 * MIB)
        unmapped = audit_program("begin", "unmapped")
        self.check(unmapped.row("the program", "memory (VMM)"), made=1, ended=1, bytes_now=0, bytes_peak=8 * MIB)
        self.check(unmapped.row("the program", "mappings"), made=1, ended=1, bytes_now=0)
        self.check(unmapped.row("the program", "addresses", None), made=1, ended=1, bytes_now=0)
        self.check(unmapped.row("the program", "access"), made=1, bytes_made=8 * MIB)

    def test_the_drivers_pools_as_what_they_hold(self):
        found = audit_program("begin", "pooled")
        self.check(found.row("the program", "in memory pools"), made=1, bytes_now=8 * MIB)
        self.assertGreaterEqual(found.device()["in_driver_pools"], 8 * MIB)

    def test_what_a_graph_that_allocates_asks_for(self):
        found = audit_program("begin", "in-graphs", preloaded=audited.ARRAYS)
        self.check(found.row("the program", "in graphs"), made=3, failed=0, bytes_made=12 * MIB, bytes_now=0)
        self.assertEqual([row for row in found.reports[-1]["rows"] if row["what"] == "in memory pools"], [])
        device = found.device()
        self.assertEqual((device["in_graphs"], device["not_attributed"]), (12 * MIB, 0))
        self.assertRegex(found.err, r"the driver +graphs' memory +0 .* 12 MiB ")

    def test_graphs_that_allocate_nothing_as_nothing(self):
        self.assertEqual(audit_program("begin", "pooled").device()["in_graphs"], 0)

    def test_arrays_as_what_the_driver_took_for_them(self):
        found = audit_program("begin", "arrays", preloaded=audited.ARRAYS)
        self.check(found.row("the program", "arrays"), made=3, ended=1, failed=0, bytes_made=30 * MIB,
                   bytes_now=20 * MIB, bytes_peak=30 * MIB, device_memory=True)
        self.assertEqual(found.device()["not_attributed"], 0)

    def test_arrays_that_the_driver_refused(self):
        found = audit_program("begin", "refused-arrays", preloaded=audited.ARRAYS)
        self.check(found.row("the program", "arrays"), made=0, failed=2, bytes_now=0)
        self.assertEqual(found.reports[0]["reason"],
                         "out of memory: cuArray3DCreate_v2 of 4 PiB by the program on device 0")

    def test_nccls_memory_as_nccls_and_its_calls_as_the_callers(self):
        found = audit_program("begin", "registered")
        self.check(found.row("the program", "ncclMemAlloc"), made=1, ended=1, bytes_made=4 * MIB, bytes_now=0)
        self.check(found.row("the program", "registrations"), made=1, ended=1, bytes_made=4 * MIB)
        self.assertGreaterEqual(found.row("NCCL", "memory (VMM)")["bytes_peak"], 4 * MIB)

    def test_commpools_memory_as_commpools(self):
        found = Audited([audited.CLI, "allreduce", "--backing", "vmm", "--bytes", "8K"])
        self.check(found.row("commpool", "memory (VMM)"), failed=0)
        self.check(found.row("commpool", "probes (VMM)"), made=0, failed=1)

    def test_all_that_a_device_has_given(self):
        found = audit_program("begin", "linked", "looked-up", "libcuda.so.1", "mapped", "pooled")
        device = found.device()
        self.assertGreaterEqual(device["used"], 96 * MIB)
        self.assertEqual((device["attributed"], device["not_attributed"]), (device["used"], 0))

    def test_windows(self):
        found = Audited([audited.CLI, "allreduce", "--register", "window", "--bytes", "1M"],
                        launcher=["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2"])
        self.assertEqual(found.code, 0, found.err)
        for report in range(2):
            rank = found.reports[report]["rank"]
            self.check(found.row("commpool", "windows", rank, report=report), failed=0)
            self.assertGreaterEqual(found.row("commpool", "windows", rank, report=report)["made"], 1)


class Reports(unittest.TestCase):
    def test_name_their_rank(self):
        found = audit_program("begin", "linked", RANK="3", WORLD_SIZE="8")
        self.assertEqual((found.reports[0]["rank"], found.reports[0]["ranks"]), (3, 8))
        self.assertRegex(found.err, r"commpool audit: rank 3 of 8, process \d+ \(audited_program\): exit")

    def test_come_once_for_each_rank_under_mpirun(self):
        found = audit_program("begin", "linked",
                              launcher=["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2"])
        self.assertEqual(sorted(report["rank"] for report in found.reports), [0, 1])

    def test_come_on_a_signal(self):
        found = audit_program("begin", "linked", "signal", "RECORD")
        self.assertEqual([report["reason"] for report in found.reports], ["signal User defined signal 2", "exit"])

    def test_come_before_a_signal_ends_the_process(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT):
            found = audit_program("begin", "linked", "ends-by", str(int(number)))
            self.assertEqual([report["reason"] for report in found.reports], [f"signal {signal.strsignal(number)}"])
            self.assertEqual(found.code, -number, found.err)

    def test_do_not_come_from_a_fork_that_a_signal_ends(self):
        found = audit_program("begin", "linked", "ends-a-child")
        self.assertEqual(([report["reason"] for report in found.reports], found.code), (["exit"], 0))

    def test_come_where_a_device_holds_more_than_the_limit(self):
        found = audit_program("begin", "linked", "linked", options=["--limit", "80M"])
        self.assertEqual([report["reason"] for report in found.reports],
                         ["device 0 is over the limit"] * 2 + ["exit"])
        self.assertEqual(found.row("the program", "memory", report=0)["bytes_now"], 96 * MIB)

    def test_come_when_memory_first_runs_out(self):
        found = audit_program("begin", "out-of-memory")
        self.assertEqual([report["reason"] for report in found.reports],
                         ["out of memory: cuMemAlloc_v2 of 1 PiB by the program on device 0", "exit"])
        self.assertEqual(found.row("the program", "memory")["failed"], 2)

    def test_come_where_the_program_asks(self):
        found = audit_program("begin", "linked", "report")
        self.assertEqual([report["reason"] for report in found.reports], ["step 1", "exit"])

    def test_do_not_come_from_a_fork(self):
        self.assertEqual(len(audit_program("begin", "linked", "fork").reports), 1)

    def test_show_where_python_asked(self):
        found = Audited([sys.executable, "-c", _IN_PYTHON], options=["--python-stacks"])
        stacks = found.reports[-1]["stacks"]
        self.assertEqual([(stack["library"], stack["bytes_now"], stack["stack"]) for stack in stacks],
                         [("the program", 20 * MIB, "<string>:5 allocate\n<string>:10 <module>")])

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


class Cupti(unittest.TestCase):
    def inject(self, *words, options=(), **variables):
        return audit_program(*words, options=["--cupti", audited.CUPTI, *options], **variables)

    def test_has_the_books_where_it_can(self):
        found = self.inject("begin", "inject", "linked", STAND_IN_CUPTI=audited.CUPTI)
        row = found.row("stand_in_cupti.so", "memory")
        self.assertEqual((row["made"], row["ended"], row["bytes_now"]), (2, 1, 40 * MIB))
        self.assertEqual(found.reports[-1]["seen"], "by CUPTI's callbacks, NCCL by a preload")
        self.assertFalse([row for row in found.reports[-1]["rows"]
                          if (row["library"], row["what"]) == ("the program", "memory")], "counted twice")

    def test_counts_arrays_and_graphs_too(self):
        found = self.inject("begin", "inject-arrays", STAND_IN_CUPTI=audited.CUPTI, preloaded=audited.ARRAYS)
        row = found.row("stand_in_cupti.so", "arrays")
        self.assertEqual((row["made"], row["ended"], row["bytes_made"], row["bytes_now"]), (2, 1, 30 * MIB, 20 * MIB))
        row = found.row("stand_in_cupti.so", "in graphs")
        self.assertEqual((row["made"], row["bytes_made"]), (1, 4 * MIB))
        self.assertEqual(found.device()["in_graphs"], 4 * MIB)

    def test_with_another_subscriber_leaves_them_to_the_preload(self):
        found = self.inject("begin", "inject", "linked", STAND_IN_CUPTI_IS_TAKEN="1")
        self.assertEqual(found.row("the program", "memory")["made"], 2)
        self.assertIn("by a preload (another tool has subscribed to CUPTI, which takes one)", found.err)

    def test_that_is_not_there_is_said(self):
        found = audit_program("begin", "inject", "linked", options=["--cupti", "/nowhere/libcupti.so"])
        self.assertEqual(found.row("the program", "memory")["made"], 2)
        self.assertIn("by a preload (there is no /nowhere/libcupti.so; --cupti names its file)", found.err)

    def test_is_left_alone_where_a_preload_is_asked_for(self):
        variables = {"CUDA_INJECTION64_PATH": ""}
        found = audit_program("begin", "linked", options=["--by", "preload"], **variables)
        self.assertEqual(found.reports[-1]["seen"], "by a preload")


class Programs(unittest.TestCase):
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
        found = audit_program("parent", LD_PRELOAD=audited.NEXT)
        self.assertGreater(int(found.out), 1000000)

    def test_that_do_not_exist_are_an_error(self):
        found = Audited(["no-such-program"], emulated=False)
        self.assertEqual(found.code, 4)
        self.assertIn("commpool audit: cannot start no-such-program: there is no such program", found.err)

    def test_that_cannot_be_executed_are_an_error_that_says_why(self):
        with tempfile.NamedTemporaryFile() as file:
            for program, why in ((file.name, "may not be executed"), ("/tmp", "it is a folder")):
                found = Audited([program], emulated=False)
                self.assertEqual(found.code, 4)
                self.assertIn(why, found.err)

    def test_options_that_it_does_not_know_are_an_error(self):
        found = subprocess.run([audited.CLI, "audit", "--bogus", "--", "true"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(found.returncode, 4)
        self.assertIn("there is no option --bogus", found.stderr)

    def test_that_are_not_named_are_an_error(self):
        found = Audited([], emulated=False)
        self.assertEqual(found.code, 4)
        self.assertIn("say which program", found.err)

    def test_whose_record_has_a_comma_are_refused_by_name(self):
        found = audit_program("seven", record="a,b")
        self.assertEqual(found.code, 4)
        self.assertIn("a,b has a comma", found.err)


class Unfit(unittest.TestCase):
    """Programs into which nothing can be preloaded: refused before they start."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(folder.name, 0o755)

    def refusal(self, program):
        found = Audited([program], emulated=False)
        self.assertEqual(found.code, 3, found.err)
        return found.out

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
        self.assertIn(f"{program} runs with more rights than its user has", self.refusal(program))

    def test_a_script_by_its_interpreter(self):
        interpreter = self.make_setuid()
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!{interpreter}\n")
        os.chmod(script, 0o755)
        self.assertIn(f"{interpreter} runs with more rights", self.refusal(script))

    def test_no_script_whose_env_has_options_and_settings(self):
        script = os.path.join(self.folder, "script")
        for line in ("-S sh -u", "-S A=1 sh", "-S -i A=1 sh"):
            with self.subTest(line=line):
                with open(script, "w", encoding="utf-8") as file:
                    file.write(f"#!/usr/bin/env {line}\nexit 7\n")
                os.chmod(script, 0o755)
                alone = subprocess.run([script], check=False, capture_output=True).returncode
                self.assertEqual(Audited([script], emulated=False).code, alone)

    def test_statically_linked(self):
        program = os.path.join(self.folder, "static")
        source = "int main(void) { return 0; }"
        subprocess.run(["gcc", "-static", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
        self.assertIn(f"{program} is linked statically", self.refusal(program))


if __name__ == "__main__":
    unittest.main()
