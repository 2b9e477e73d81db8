"""How the work of `commpool report` grows with the pools of a recording, in instructions."""

import os
import re
import shutil
import unittest

import cli

_POOLS = 500


@unittest.skipUnless(shutil.which("valgrind"), "no valgrind, which counts instructions")
class ReportGrowth(cli.RecordingsTest):
    def instructions(self, pools, *options):
        self.make("--pools", ranks=1, events=pools)
        result = self.ends(0, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", cli.CLI,
                           "report", self.recordings, "--output", os.path.join(self.folder, "output"), *options,
                           program="valgrind")
        shutil.rmtree(self.recordings)
        return int(re.search(r"I +refs: +([\d,]+)", result.stderr)[1].replace(",", ""))

    def check_is_near_linear(self, *options):
        few, more, most = (self.instructions(pools, *options) for pools in (_POOLS, 2 * _POOLS, 4 * _POOLS))
        # 2 where it is linear; 4 where it is quadratic.
        self.assertLess((most - more) / (more - few), 2.5)

    def test_a_page_is_near_linear_in_pools(self):
        self.check_is_near_linear()

    def test_a_snapshot_is_near_linear_in_pools(self):
        self.check_is_near_linear("--as", "snapshot")
