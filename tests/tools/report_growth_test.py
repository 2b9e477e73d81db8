"""How the work of `commpool report` grows with the pools of a recording, in instructions."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import cli

_WRITER = os.path.abspath("tests/report/example_recordings")
_POOLS = 500


@unittest.skipUnless(shutil.which("valgrind"), "no valgrind, which counts instructions")
class ReportGrowth(unittest.TestCase):
    def instructions(self, pools, *options):
        with tempfile.TemporaryDirectory() as folder:
            recordings = os.path.join(folder, "recordings")
            subprocess.run([_WRITER, recordings, "1", str(pools), "--pools"], check=True, timeout=60)
            result = cli.run("--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", cli.CLI,
                             "report", recordings, "--output", os.path.join(folder, "output"), *options,
                             program="valgrind")
        self.assertEqual(result.returncode, 0, result.stderr)
        return int(re.search(r"I +refs: +([\d,]+)", result.stderr)[1].replace(",", ""))

    def check_is_near_linear(self, *options):
        few, more, most = (self.instructions(pools, *options) for pools in (_POOLS, 2 * _POOLS, 4 * _POOLS))
        # 2 where it is linear; 4 where it is quadratic.
        self.assertLess((most - more) / (more - few), 2.5)

    def test_a_page_is_near_linear_in_pools(self):
        self.check_is_near_linear()

    def test_a_snapshot_is_near_linear_in_pools(self):
        self.check_is_near_linear("--as", "snapshot")


if __name__ == "__main__":
    unittest.main()
