"""Ctrl-C, and every other handler of a signal that raises, ends a wait for other processes at once."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import time
import unittest

import emulated
import commpool
import ranks
from other_process import Other

_DEADLINE_MS = 60000
# Of a pool, and of a group of pools.
_CALLS = {"reserve": lambda pools: pools.reserve("8MiB"), "reclaim": lambda pools: pools.reclaim(),
          "verify": lambda pools: pools.verify(), "sleep": lambda pools: pools.sleep(graphs="discarded"),
          "close": lambda pools: pools.close()}


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


def wait_alone(job):
    """Rank 0 makes each call, and rank 1 does not come."""
    waited = {}
    for name, call in (*_CALLS.items(), ("trim", lambda pool: pool.trim())):
        pool = job.pool(name, deadline_ms=_DEADLINE_MS)
        if job.rank == 0:
            waited[name] = _seconds_until_interrupted(lambda call=call, pool=pool: call(pool))
        job.gather(None)
        pool.destroy()
    if job.rank == 0:
        waited["create"] = _seconds_until_interrupted(lambda: job.pool("create", deadline_ms=_DEADLINE_MS))
    job.gather(None)
    return waited


def be_late(job):
    """A handler that raises nothing changes nothing: rank 0 waits on, until rank 1 comes."""
    heard = []
    pool = job.pool("late", deadline_ms=_DEADLINE_MS)
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
    def assert_ended_early(self, waited, calls):
        """`waited`: call -> how long it waited."""
        self.assertEqual(len(waited), calls)
        for call, seconds in waited.items():
            self.assertIsNotNone(seconds, call)
            self.assertLess(seconds, _DEADLINE_MS / 1000 / 4, call)

    def test_end_every_wait_for_ranks(self):
        waited, _ = ranks.run(wait_alone)
        self.assert_ended_early(waited, 7)

    def test_end_every_wait_of_a_group_for_a_rank_of_another_thread(self):
        first, second, third = emulated.communicators([0, 1, 2])

        def make_group(name):
            return commpool.PoolGroup(name, devices=[0, 1], symmetric_across=[first, second], deadline_ms=_DEADLINE_MS)

        def make_third(name):
            return commpool.Pool(name, device=2, symmetric_across=third, deadline_ms=_DEADLINE_MS)

        waited = {}
        for name, call in _CALLS.items():
            with concurrent.futures.ThreadPoolExecutor() as threads:
                other = threads.submit(make_third, name)
                pools = make_group(name)
            waited[name] = _seconds_until_interrupted(lambda call=call, pools=pools: call(pools))
            for pool in (*pools, other.result()):
                pool.destroy()
        waited["create"] = _seconds_until_interrupted(lambda: make_group("create"))
        self.assert_ended_early(waited, 6)

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
        self.assert_ended_early(waited, 3)

    def test_whose_handlers_return_leave_the_wait_as_it_is(self):
        heard, _ = ranks.run(be_late)
        self.assertGreater(heard, 0)
