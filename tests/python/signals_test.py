"""Ctrl-C, and every other handler of a signal that raises, ends a wait for other processes at once."""

import contextlib
import ctypes
import os
import pathlib
import signal
import threading
import time
import unittest

import emulated
import commpool
import ranks
from other_process import Other

_DEADLINE_MS = 60000


class _Alarm(Exception):
    """What the handler raises."""


def _raise(_signal, _frame):
    raise _Alarm


def _seconds_until_interrupted(call):
    """How long a call waits that a signal interrupts; None where it returns, or raises another exception."""
    signal.signal(signal.SIGALRM, _raise)
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        call()
    except _Alarm:
        return time.monotonic() - begun
    return None


def _pool(job, name):
    return commpool.Pool(name, device=job.device, symmetric_across=job.communicator, deadline_ms=_DEADLINE_MS)


def wait_alone(job):
    """Rank 0 makes each call, and rank 1 does not come."""
    calls = {"reserve": lambda pool: pool.reserve("8MiB"), "reclaim": lambda pool: pool.reclaim(),
             "trim": lambda pool: pool.trim(), "verify": lambda pool: pool.verify(),
             "sleep": lambda pool: pool.sleep(graphs="discarded"), "close": lambda pool: pool.close()}
    waited = {}
    for name, call in calls.items():
        pool = _pool(job, name)
        if job.rank == 0:
            waited[name] = _seconds_until_interrupted(lambda call=call, pool=pool: call(pool))
        job.gather(None)
        pool.destroy()
    if job.rank == 0:
        waited["create"] = _seconds_until_interrupted(lambda: _pool(job, "create"))
    job.gather(None)
    return waited


def be_late(job):
    """A handler that raises nothing changes nothing: rank 0 waits on, until rank 1 comes."""
    heard = []
    pool = _pool(job, "late")
    if job.rank == 0:
        signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    else:
        time.sleep(1)
    pool.reserve("2MiB")
    signal.setitimer(signal.ITIMER_REAL, 0)
    pool.close()
    return len(heard)


def _await_stop(process):
    """Until no thread of the process runs any more: one may still answer."""
    tasks = pathlib.Path(f"/proc/{process}/task")
    while any(" T " not in (task / "stat").read_text(encoding="utf-8") for task in tasks.iterdir()):
        pass


class Signals(unittest.TestCase):
    def assert_ended_early(self, waited):
        """`waited`: call -> how long it waited."""
        for call, seconds in waited.items():
            self.assertIsNotNone(seconds, call)
            self.assertLess(seconds, _DEADLINE_MS / 1000 / 4, call)

    def test_end_every_wait_for_ranks(self):
        waited, _ = ranks.run(wait_alone)
        self.assert_ended_early(waited)
        self.assertEqual(len(waited), 7)

    def test_end_every_wait_of_a_group_for_a_rank_of_another_thread(self):
        commpool.initialize("emulated")
        communicators = (ctypes.c_void_p * 3)()
        emulated.check(emulated.nccl().ncclCommInitAll(communicators, 3, (ctypes.c_int * 3)(0, 1, 2)))
        first, second, third = communicators

        def make_group(name):
            return commpool.PoolGroup(name, devices=[0, 1], symmetric_across=[first, second], deadline_ms=_DEADLINE_MS)

        def make_third(name, made):
            made.append(commpool.Pool(name, device=2, symmetric_across=third, deadline_ms=_DEADLINE_MS))

        calls = {"reserve": lambda pools: pools.reserve("8MiB"), "reclaim": lambda pools: pools.reclaim(),
                 "verify": lambda pools: pools.verify(), "sleep": lambda pools: pools.sleep(graphs="discarded"),
                 "close": lambda pools: pools.close()}
        waited = {}
        for name, call in calls.items():
            made = []
            other = threading.Thread(target=make_third, args=[name, made])
            other.start()
            pools = make_group(name)
            other.join()
            waited[name] = _seconds_until_interrupted(lambda call=call, pools=pools: call(pools))
            for pool in (*pools, *made):
                pool.destroy()
        waited["create"] = _seconds_until_interrupted(lambda: make_group("create"))
        self.assert_ended_early(waited)
        self.assertEqual(len(waited), 6)

    def test_end_every_wait_for_the_owner_of_an_import(self):
        owner = Other()
        self.addCleanup(owner.end)
        owner.does("pool = commpool.Pool(); blocks = [pool.allocate(1 << 20) for _ in range(2)]")
        tickets = [owner.says(f"pool.share(blocks[{number}])") for number in range(2)]
        imported = commpool.Pool.import_(tickets[0], deadline_ms=_DEADLINE_MS)
        block = imported.block(tickets[0])
        waited = {}
        owner.does("update = pool.update(blocks[0]); update.__enter__()")
        waited["read"] = _seconds_until_interrupted(lambda: block.read().__enter__())
        owner.does("update.__exit__(None, None, None)")
        process = owner.says("__import__('os').getpid()")
        with contextlib.ExitStack() as going_on:
            going_on.callback(os.kill, process, signal.SIGCONT)
            os.kill(process, signal.SIGSTOP)
            _await_stop(process)
            waited["block"] = _seconds_until_interrupted(lambda: imported.block(tickets[1]))
            waited["import"] = _seconds_until_interrupted(lambda: commpool.Pool.import_(tickets[0]))
        self.assert_ended_early(waited)

    def test_whose_handlers_return_leave_the_wait_as_it_is(self):
        heard, _ = ranks.run(be_late)
        self.assertGreater(heard, 0)


if __name__ == "__main__":
    unittest.main()
