"""One rank of eight trains, and the others are nowhere: what it holds at its peak, and by which lines."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from on_emulator import printed_by
from routed import LIBRARY

_CLI = os.path.abspath("tools/cli/commpool")
_PROGRAM = str(pathlib.Path(__file__).with_name("one_rank.py"))


class OneRank(unittest.TestCase):
    def run_rank(self, *words, ranks=8):
        printed = printed_by(_PROGRAM, *words, COMMPOOL_EMULATOR="kernels=none,ranks=one", COMMPOOL_LIBRARY=LIBRARY,
                             RANK="0", WORLD_SIZE=str(ranks))
        return [int(number) for number in printed.split()]

    def test_holds_its_share_of_parameters_gradients_and_moments(self):
        (parameters, of_two), (_, of_eight) = self.run_rank(ranks=2), self.run_rank()
        floats = (of_two - of_eight) / (4 * parameters / 2 - 4 * parameters / 8)
        self.assertTrue(3 < floats < 4, f"{floats} of each parameter; of gradients not all are there at the peak")

    def test_has_its_peak_in_the_report_by_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            parameters, peak = self.run_rank(folder)
            page = pathlib.Path(folder, "report.html")
            subprocess.run([_CLI, "report", folder, "--output", page], check=True, timeout=60)
            text = page.read_text(encoding="utf-8")
        model = json.loads(re.search(r'<script type="application/json" id="model">(.*?)</script>', text, re.DOTALL)[1])
        rank, = model["ranks"]
        self.assertAlmostEqual(rank["peak"]["bytes"], peak, delta=peak // 20)
        holders = {holder["what"].split("/")[-1]: holder["bytes"] for holder in rank["peak"]["holders"]}
        moments = [held for line, held in holders.items() if line.startswith("adam.py:") and "_init_group" in line]
        self.assertEqual(len(moments), 2, holders)
        for moment in moments:  # threads' caches serve the small ones
            self.assertAlmostEqual(moment, 4 * parameters // 8, delta=parameters // 40)
