"""Process groups that give NCCL's own memory back: two ranks, a process each, with the emulated NCCL below torch's."""

import pathlib
import unittest

from rank_processes import said_by_ranks

_RANKS = pathlib.Path(__file__).with_name("sleeping_group_ranks.py")


class SleepingGroups(unittest.TestCase):
    def test_come_back_and_work_with_their_pools(self):
        said = said_by_ranks(_RANKS, "sleeps_and_wakes", COMMPOOL_EMULATOR="nccl=2.30.7")
        self.assertEqual(said["sleeps_and_wakes"], [[True, True, False, 4.0, []]] * 2)

    def test_of_an_older_nccl_say_so(self):
        for message in said_by_ranks(_RANKS, "of_an_older_nccl")["of_an_older_nccl"]:
            self.assertRegex(message, "communicators that sleep need NCCL 2.29.7; .* is 2.28.9")


if __name__ == "__main__":
    unittest.main()
