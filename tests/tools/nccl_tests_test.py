"""tools/suites/nccl_tests.py, over a program that prints what nccl-tests prints."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path("tools/suites/nccl_tests.py")
# Slower by a fifth, or wrong, under what takes the place of `commpool run`.
PROGRAM = """#!/bin/sh
[ -z "{ends}" ] || {{ echo no such device >&2; exit 1; }}
speed=100.0 wrong=0
[ -z "$UNDER" ] || {{ speed={speed}; wrong={wrong}; }}
echo "# nccl-tests version"
for size in 8 1048576 2097152 4194304; do
  place="15.91 0.07 $speed $wrong"
  echo "  $size  2048  float  {reduction}  -1  $place  $place"
done
echo "# "
exit $wrong
"""
RUN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
UNDER=1 exec "$@"
"""


class NcclTests(unittest.TestCase):
    def compare(self, speed="100.0", wrong=0, ends="", reduction="sum"):
        """The tool's status, and what it says."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = PROGRAM.format(speed=speed, wrong=wrong, ends=ends, reduction=reduction)
        for name, text in {"all_reduce_perf": program, "commpool": RUN}.items():
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        done = subprocess.run([sys.executable, TOOL, "--build", folder, "--commpool", folder / "commpool"],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_the_same_results_and_bandwidth_pass(self):
        self.assertEqual(self.compare(), (0, ["all_reduce_perf plain buffers: 1.000 +- 0.000, 0 wrong, 3 sizes",
                                              "all_reduce_perf windows: 1.000 +- 0.000, 0 wrong, 3 sizes"]))

    def test_a_program_without_a_reduction_is_read(self):
        self.assertEqual(self.compare(reduction=""), self.compare())

    def test_slower_under_run_fails(self):
        status, said = self.compare(speed="80.0")
        self.assertEqual((status, said[1]), (1, "all_reduce_perf windows: 0.800 +- 0.000, 0 wrong, 3 sizes"))

    def test_a_wrong_result_fails(self):
        status, said = self.compare(wrong=1)
        self.assertEqual((status, said[0]), (1, "all_reduce_perf plain buffers: 1.000 +- 0.000, 80 wrong, 3 sizes"))

    def test_a_program_that_ends_badly_is_a_row_with_its_reason(self):
        status, said = self.compare(ends="yes")
        self.assertEqual((status, said[1]), (1, "all_reduce_perf windows: failed: no such device"))
