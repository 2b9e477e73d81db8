"""Ctrl-C, and every other handler of a signal that raises, ends a wait for other ranks at once."""

import signal
import time
import unittest

import emulated  # noqa: F401  before commpool
import commpool
import ranks

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


class Signals(unittest.TestCase):
    def test_end_every_wait_for_ranks(self):
        waited, _ = ranks.run(wait_alone)
        for call, seconds in waited.items():
            self.assertIsNotNone(seconds, call)
            self.assertLess(seconds, _DEADLINE_MS / 1000 / 4, call)
        self.assertEqual(len(waited), 7)

    def test_whose_handlers_return_leave_the_wait_as_it_is(self):
        heard, _ = ranks.run(be_late)
        self.assertGreater(heard, 0)


if __name__ == "__main__":
    unittest.main()
