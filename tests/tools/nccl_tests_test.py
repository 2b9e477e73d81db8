"""tools/suites/nccl_tests.py, over a program that prints what nccl-tests prints."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path("tools/suites/nccl_tests.py")
# Slower by a fifth, or wrong, under what takes the place of `commpool run`.
PROGRAM = """#!{python}
import os, sys
under = os.environ.get("UNDER")
speed, wrong = (80.0 if under and {slow} else 100.0), (1 if under and {wrong} else 0)
if {ends}:
    sys.exit("no such device")
print("# nccl-tests version")
for size in (8, 1 << 20, 1 << 21, 1 << 22):
    print(f"{{size:12}} {{size // 4:12}}    float     sum      -1" + 2 * f"   15.91    0.07  {{speed}}     {{wrong}}")
"""
RUN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
UNDER=1 exec "$@"
"""


class NcclTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, slow=False, wrong=False, ends=False):
        """The tool's status, and what it says."""
        program = PROGRAM.format(python=sys.executable, slow=slow, wrong=wrong, ends=ends)
        for name, text in {"all_reduce_perf": program, "commpool": RUN}.items():
            (self.folder / name).write_text(text, encoding="utf-8")
            (self.folder / name).chmod(0o755)
        done = subprocess.run([sys.executable, TOOL, "--build", self.folder, "--commpool", self.folder / "commpool"],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_the_same_results_and_bandwidth_pass(self):
        self.assertEqual(self.compare(), (0, ["all_reduce_perf plain buffers: 1.000 +- 0.000, 0 wrong, 4 sizes",
                                              "all_reduce_perf windows: 1.000 +- 0.000, 0 wrong, 4 sizes"]))

    def test_slower_under_run_fails(self):
        status, said = self.compare(slow=True)
        self.assertEqual((status, said[1]), (1, "all_reduce_perf windows: 0.800 +- 0.000, 0 wrong, 4 sizes"))

    def test_a_wrong_result_fails(self):
        status, said = self.compare(wrong=True)
        self.assertEqual((status, said[0]), (1, "all_reduce_perf plain buffers: 1.000 +- 0.000, 16 wrong, 4 sizes"))

    def test_a_program_that_ends_badly_is_a_row_with_its_reason(self):
        status, said = self.compare(ends=True)
        self.assertEqual((status, said[1]), (1, "all_reduce_perf windows: failed: no such device"))


if __name__ == "__main__":
    unittest.main()
