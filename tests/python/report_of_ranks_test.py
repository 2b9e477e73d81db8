"""`commpool report` of ranks that record themselves: their clocks, who was waited for, the first call that differs."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import emulated
import commpool
import ranks
from emulated import MIB

_COMMPOOL = os.path.abspath("tools/cli/commpool")


def await_other(folder, word):
    """Returns once another rank's recording has the word: what is recorded is written while the call runs."""
    while not any(word in file.read_bytes() for file in pathlib.Path(folder).glob("*.recording")
                  if f"-{os.getpid()}." not in file.name):
        pass


def diverge(job):
    """Rank 1 comes late to the trim, and its third block has another size."""
    folder = job.gather(tempfile.mkdtemp() if job.rank == 0 else None)[0]
    with commpool.record(folder, stacks="python"):
        pool = job.pool("gradients", reserve="8MiB")
        blocks = [pool.allocate(MIB), pool.allocate(2 * MIB)]
        if job.rank == 1:
            await_other(folder, b"trim")
        pool.trim("16MiB")
        blocks.append(pool.allocate(2 * MIB * (1 + job.rank)))
        with contextlib.suppress(commpool.Disagreement):
            pool.verify()
        for block in blocks:
            block.free()
        pool.close()
    job.communicator.end()
    return folder


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = ranks.run(diverge)[0]
        page = pathlib.Path(folder) / "page.html"
        subprocess.run([_COMMPOOL, "report", folder, "--output", page], check=True, capture_output=True, timeout=60)
        cls.model = json.loads(re.search(r'id="model">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)[1])

    def test_marks_the_first_call_that_differs_on_both_ranks(self):
        difference = self.model["difference"]
        self.assertEqual(difference["pool"], "gradients")
        self.assertEqual(len(difference["ranks"]), 2)
        for rank, words in zip(difference["ranks"], ("allocate 2,097,152 bytes", "allocate 4,194,304 bytes")):
            self.assertRegex(rank["text"], rf"^{words} at \.\.\./\w+/report_of_ranks_test\.py:\d+ diverge$")

    def test_aligns_clocks_by_what_the_ranks_agreed_on(self):
        self.assertFalse([note for note in self.model["notes"] if "clock" in note], self.model["notes"])

    def test_says_who_was_waited_for(self):
        for events in (rank["events"] for rank in self.model["ranks"]):
            trims = [place for place, text in enumerate(events["text"]) if text.startswith("trim; ")]
            self.assertEqual([events["waited_for"][place] for place in trims], [1])
            self.assertIn("rank 1 came last", events["text"][trims[0]])

    def test_has_every_rank_with_its_window(self):
        for rank in self.model["ranks"]:
            self.assertEqual(rank["pools"][0]["registrations"]["kind"], ["window"])
