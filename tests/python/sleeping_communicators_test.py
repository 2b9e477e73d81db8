"""Communicators that give NCCL's own memory back: one process a rank, on an emulated NCCL that can."""

import os
import unittest

os.environ["COMMPOOL_EMULATOR"] = "nccl=2.30.7"

import emulated  # noqa: E402
import ranks  # noqa: E402
import commpool  # noqa: E402
from emulated import MIB  # noqa: E402


def sleeps_and_wakes(job):
    with job.pool("gradients", reserve="2MiB") as pool:
        buffer = pool.allocate(MIB)
        offset = pool.window_of(buffer, job.communicator).offset
        awake = commpool.communicator_memory(job.communicator)
        pool.sleep(graphs="discarded")
        commpool.sleep_communicator(job.communicator, deadline_ms=20000)
        asleep = commpool.communicator_memory(job.communicator)
        early = ranks.message_of(pool.wake)
        commpool.wake_communicator(job.communicator)
        pool.wake()
        back = pool.window_of(buffer, job.communicator).offset == offset
        buffer.free()
    job.communicator.end()
    gives_back = 0 < asleep.sleeping_bytes < awake.bytes
    return early, back, awake.asleep, asleep.asleep, gives_back, emulated.reports()[0]


def is_refused(job):
    with job.pool("gradients", reserve="2MiB") as pool:
        refused = ranks.message_of(commpool.sleep_communicator, job.communicator)
        asleep = commpool.communicator_memory(job.communicator).asleep
        pool.allocate(MIB).free()
    job.communicator.end()
    return refused, asleep, emulated.reports()[0]


class SleepingCommunicators(unittest.TestCase):
    def test_are_refused_while_a_pool_is_awake(self):
        for refused, *others in ranks.run(is_refused):
            self.assertRegex(refused, "^FailedPrecondition: .*pool gradients.* is registered with the communicator")
            self.assertEqual(others, [False, 0])

    def test_give_their_memory_back_between_the_sleep_of_their_pools(self):
        for early, *others in ranks.run(sleeps_and_wakes):
            self.assertRegex(early, "^FailedPrecondition: .*the communicator is asleep: wake it first")
            self.assertEqual(others, [True, False, True, True, 0])

    def test_must_be_some(self):
        for call, *arguments in ((commpool.sleep_communicator, None), (commpool.wake_communicator, None),
                                 (commpool.sleep_communicator, "comm"), (commpool.sleep_communicator, 64, -1)):
            self.assertRaises(commpool.InvalidArgument, call, *arguments)
