"""Each wait of a step of DDP is left out in turn: reported, or it repeats another."""

import unittest

from rank_processes import run_ranks

_STEP = [
    "before ncclBroadcast",  # ProcessGroupNCCL::getOperationStream: of the buffers in floats
    "before ncclBroadcast",  # of those in whole numbers
    "after ncclBroadcast",  # WorkNCCL::wait in broadcast_coalesced
    "after ncclBroadcast",
    "before ncclAllReduce",  # getOperationStream: of the first bucket
    "nothing",  # WorkNCCL::getFuture waits at once: the second bucket's does so for both
    "before ncclAllReduce",
    "after ncclAllReduce",
    "nothing",  # Reducer::finalize_backward waits for its own stream: the futures' events are recorded there
    "nothing",
]


class DdpWaits(unittest.TestCase):
    def test_are_reported_unless_they_repeat_another(self):
        (code, said, errors), _ = run_ranks("ddp_waits_ranks.py", 2)
        self.assertEqual((code, said.splitlines()), (0, _STEP), errors)
