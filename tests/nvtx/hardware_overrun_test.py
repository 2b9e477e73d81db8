"""How hardware_overrun.py judges what compute-sanitizer said."""

import io
import contextlib
import os
import pathlib
import tempfile
import unittest

import hardware_overrun as overrun

_PAST = overrun.Case("past", "fixed", 1000, 1100, finds=True)
_INSIDE = overrun.Case("inside", "fixed", 1000, 1000, finds=False)
_RAN = "the kernel wrote 1100 bytes: result 0\n"


def _said(*lines):
    return _RAN + "".join(f"========= {line}\n" for line in lines)


class Verdict(unittest.TestCase):
    def test_an_overrun_is_found_and_the_pool_named(self):
        said = _said("Invalid __global__ write", "in an allocation called gradients", "ERROR SUMMARY: 1 error")
        self.assertEqual(overrun.verdict("cuda", _PAST, said), ("right", "found, pool named"))

    def test_the_programs_own_lines_do_not_name_the_pool(self):
        said = "pool gradients\n" + _said("Invalid __global__ write", "ERROR SUMMARY: 100 errors")
        self.assertEqual(overrun.verdict("cuda", _PAST, said), ("right", "found, pool not named"))

    def test_an_overrun_that_nobody_found_is_wrong(self):
        self.assertEqual(overrun.verdict("cuda", _PAST, _said("ERROR SUMMARY: 0 errors")), ("wrong", "found nothing"))

    def test_of_other_memory_the_tool_must_say_nothing(self):
        self.assertEqual(overrun.verdict("vmm", _PAST, _said("ERROR SUMMARY: 0 errors")), ("right", "found nothing"))
        self.assertEqual(overrun.verdict("vmm", _PAST, _said("ERROR SUMMARY: 1 error"))[0], "wrong")

    def test_an_error_inside_of_a_block_is_wrong(self):
        self.assertEqual(overrun.verdict("cuda", _INSIDE, _said("ERROR SUMMARY: 0 errors")), ("right", "found nothing"))
        self.assertEqual(overrun.verdict("cuda", _INSIDE, _said("ERROR SUMMARY: 3 errors"))[0], "wrong")

    def test_a_program_that_did_not_come_so_far_is_wrong(self):
        self.assertEqual(overrun.verdict("cuda", _INSIDE, "========= ERROR SUMMARY: 0 errors\n")[0], "wrong")
        self.assertEqual(overrun.verdict("cuda", _INSIDE, _RAN)[0], "wrong")


class Program(unittest.TestCase):
    def run_with(self, words):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            return overrun.main(["--program", "overrun", *words]), said.getvalue()

    def test_without_the_tool_it_says_so(self):
        path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        self.assertEqual(self.run_with([]), (77, "skipped: there is no compute-sanitizer\n"))

    def test_runs_each_case_and_ends_in_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "tool")
            tool.write_text(f"#!/bin/sh\necho '{_RAN.strip()}'\necho '========= ERROR SUMMARY: 0 errors'\n")
            tool.chmod(0o755)
            status, said = self.run_with(["--sanitizer", str(tool), "--backing", "cuda"])
        self.assertEqual(status, 1)
        self.assertEqual(said.count("$ "), 5)
        self.assertIn("past a full block          wrong  found nothing", said)


if __name__ == "__main__":
    unittest.main()
