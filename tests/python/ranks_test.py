"""Symmetric and registered pools over several processes, on the emulated NCCL."""

import ctypes
import functools
import threading
import unittest
from types import SimpleNamespace

import emulated
import commpool
import ranks
from emulated import MIB, cuda

_FLOAT, _SUM = 7, 0


def all_reduce(job, array, value):
    """Sums every rank's `value` in the array; returns its first element."""
    check, pointer, count = emulated.check, ctypes.c_void_p(array.pointer), ctypes.c_size_t(array.nbytes // 4)
    bits = ctypes.c_uint.from_buffer(ctypes.c_float(value)).value
    check(cuda().cuMemsetD32Async(ctypes.c_uint64(array.pointer), bits, count, None))
    check(emulated.nccl().ncclAllReduce(pointer, pointer, count, _FLOAT, _SUM, ctypes.c_void_p(job.communicator.ptr),
                                        None))
    result = ctypes.c_float()
    check(cuda().cuMemcpyDtoH_v2(ctypes.byref(result), ctypes.c_uint64(array.pointer), ctypes.c_size_t(4)))
    return result.value


def train(job):
    pool = job.pool("gradients", reserve="16MiB")
    with commpool.use_pool(pool):
        arrays = [commpool.empty(MIB, device=job.device) for _ in range(2)]
    places = [pool.window_of(array, job.communicator) for array in arrays]
    total = all_reduce(job, arrays[1], 1.0 + job.rank)
    eligible = pool.nvls_eligible(arrays[0], arrays[0].nbytes, job.communicator)
    pool.verify()
    del arrays
    reclaimed = pool.reclaim()
    found = pool.mode, pool.lost_rank()
    pool.close()
    job.communicator.end()
    return total, [place.offset for place in places], places[0].handle != 0, reclaimed, *found, bool(eligible.reason)


_TRAINED = (3.0, [0, 4 * MIB], True, 8 * MIB, "symmetric", None, True)


def overflow(job):
    with job.pool("full", reserve="2MiB") as pool:
        said = ranks.message_of(pool.allocate, "4MiB")
        pool.reserve("4MiB")
        pool.allocate("4MiB").free()
    return said


def diverge(job):
    with job.pool("diverging", reserve="8MiB") as pool, pool.allocate(MIB * (1 + job.rank)):
        return ranks.message_of(pool.verify)


_REFUSED = [({"limit": "2 apples"}, "limit '2 apples' is no size"),
            ({"mode": "elastic"}, "mode 'elastic' is none of "),
            ({"reserve": "much"}, "reserve 'much' is no size"),
            ({"device": "cpu"}, "device 'cpu' is no CUDA device"),
            ({"peers": ["cuda:x"]}, "peers 'cuda:x' is no CUDA device"),
            ({"all_gather": 5}, "all_gather 5 is no commpool.Agreement"),
            ({"limitt": "2GiB"}, "Pool() got an unexpected keyword argument 'limitt': the nearest is limit")]
_NO_KEEP = "keep -1 is none of DISCARD, HOST"
_OTHER_HOME = "ranks disagree on the communicator"
# Calls of a pool: with what rank 1 gives, which it refuses so; with what the other gives, which then hears so.
_REFUSED_CALLS = [
    (lambda pool, wrong, _: pool.sleep("hots" if wrong else "host", graphs="discarded"),
     "keep 'hots' is none of discard, host, pageable, files", _NO_KEEP),
    (lambda pool, wrong, _: pool.sleep(directory=5 if wrong else None, graphs="discarded"),
     "belong together", _NO_KEEP),
    (lambda pool, wrong, _: pool.sleep(constant=5 if wrong else (), graphs="discarded"),
     "constant 5 is no list", _NO_KEEP),
    (lambda _, wrong, __: commpool.sleep(tag="refused", keep="hots" if wrong else "host", graphs="discarded"),
     "keep 'hots' is none of", _NO_KEEP),
    (lambda pool, wrong, _: pool.reserve("much" if wrong else "2MiB"), "'much' is no size",
     "ranks disagree on the bytes of reserve"),
    (lambda pool, wrong, _: pool.trim("much" if wrong else 0), "keep 'much' is no size",
     "ranks disagree on the bytes of trim"),
    (lambda pool, wrong, home: pool.register_with(object() if wrong else home), "is no communicator", _OTHER_HOME),
    (lambda pool, wrong, home: pool.deregister(object() if wrong else home), "is no communicator", _OTHER_HOME),
    (lambda pool, wrong, _: pool.sleep(graphs="some" if wrong else "discarded"), "graphs 'some' is none of", _NO_KEEP)]


def refuse(job):
    """Rank 1 alone passes invalid arguments."""
    wrong, made = job.rank == 1, {"device": job.device, "symmetric_across": job.communicator, "deadline_ms": 5000}
    said = [ranks.message_of(commpool.Pool, **{**made, **(options if wrong else {})}) for options, _ in _REFUSED]
    with commpool.Pool(**made, tag="refused") as pool:
        said += [ranks.message_of(call, pool, wrong, job.communicator) for call, *_ in _REFUSED_CALLS]
        pool.reserve("2MiB")
    return said


def agree(job):
    """The ranks agree through the test's own gathering instead of TCP."""
    rounds = []

    def all_gather(sent):
        rounds.append(len(sent))
        return job.gather(sent)

    job.pool(reserve="2MiB", all_gather=commpool.Agreement(all_gather, job.ranks)).close()
    return len(rounds)


def miscount(job):
    agreement = commpool.Agreement(lambda sent: job.gather(sent)[:1], job.ranks)
    return ranks.message_of(job.pool, all_gather=agreement)


def miss(job):
    def all_gather(sent):
        raise commpool.RankMissing(1 - job.rank)

    try:
        job.pool(all_gather=commpool.Agreement(all_gather, job.ranks))
    except commpool.CommpoolError as error:
        return str(error), type(error.__cause__).__name__


def register(job):
    """A fixed pool, and a symmetric one with a second communicator, which rank 2 does not have."""
    fixed = commpool.Pool("fixed", device=job.rank, reserve="16MiB")
    fixed.register_with(job.communicator.ptr)
    registered = [fixed.stats().registered_segments]
    grown = [fixed.allocate("16MiB") for _ in range(2)]
    registered += [fixed.stats().pending_segments, fixed.register_pending(), fixed.stats().registered_segments]
    del grown
    fixed.close()
    pair = job.make_communicator([0, 1])
    pool = job.pool("both", reserve="2MiB")
    pool.register_with(pair)
    registered.append(pool.stats().registered_segments)
    pool.deregister(pair)
    other = job.make_communicator()
    pool.deregister(job.communicator)
    pool.rehome(other)
    pool.reserve("4MiB")
    pool.close()
    return registered


def lose(job, alive=True):
    """Rank 1 is lost. The other rank hears of it, abandons its communicator and closes alone.

    `alive`: it aborts the communicator after that, else before.
    """
    heard, lost = threading.Event(), []

    def on_lost_rank(rank, in_flight):
        lost.append((rank, in_flight))
        heard.set()

    pool = job.pool("left", reserve="2MiB", deadline_ms=20000, on_lost_rank=on_lost_rank)
    job.gather(None)
    if job.rank == 1:
        job.die()
    if not heard.wait(60):
        raise AssertionError("nobody told of the loss")
    known = pool.lost_rank()
    if not alive:
        job.communicator.end("ncclCommAbort")
    pool.abandon(job.communicator, alive=alive)
    if alive:
        job.communicator.end("ncclCommAbort")
    pool.close()
    return lost, known


lose_aborted = functools.partial(lose, alive=False)


class Groups:
    """A group of some framework, whose backend has the communicator."""

    def __init__(self, communicator):
        self.communicator = communicator


def hook(job):
    commpool.add_communicator_source(
        lambda group, device: group.communicator.ptr if isinstance(group, Groups) and device == job.rank else None)
    with commpool.Pool(device=job.rank, symmetric_across=Groups(job.communicator), reserve=MIB) as pool:
        return pool.mode


class Ranks(unittest.TestCase):
    def test_all_reduce_in_windows_at_equal_offsets(self):
        self.assertEqual(ranks.run(train), [_TRAINED] * 2)

    def test_do_so_where_each_sees_its_own_device_only(self):
        self.assertEqual(ranks.run(train, alone=True), [_TRAINED] * 2)

    def test_hear_what_to_reserve_when_a_pool_is_full(self):
        first, second = ranks.run(overflow)
        self.assertRegex(first, r"^Exhausted: .*On every rank: reserve\(4194304\), which is 4 MiB$")
        self.assertEqual(first.replace("device 0", "device 1"), second)

    def test_hear_the_first_call_that_differs(self):
        for sentence in ranks.run(diverge):
            self.assertRegex(sentence, "^Disagreement: .*rank 0 made allocate 1,048,576 bytes .*"
                                       "rank 1 made allocate 2,097,152 bytes")

    def test_hear_what_one_of_them_refuses(self):
        first, second = ranks.run(refuse)
        wanted = [(reason, f"rank 1 cannot create: {reason}") for _, reason in _REFUSED]
        wanted += [(reason, told) for _, reason, told in _REFUSED_CALLS]
        for (reason, told), heard, raised in zip(wanted, first, second):
            self.assertIn(told, heard)
            self.assertIn(reason, raised)

    def test_agree_over_a_function_of_the_programs(self):
        rounds = ranks.run(agree)
        self.assertGreater(rounds[0], 3)
        self.assertEqual(rounds[0], rounds[1])

    def test_hear_what_is_wrong_with_such_a_function(self):
        for sentence in ranks.run(miscount):
            self.assertIn("and 2 ranks sent", sentence)
        for rank, (sentence, cause) in enumerate(ranks.run(miss)):
            self.assertIn(f"rank {1 - rank} did not come", sentence)
            self.assertEqual(cause, "RankMissing")

    def test_register_with_further_communicators_and_move_to_another_home(self):
        for rank, registered in enumerate(ranks.run(register, 3)):
            self.assertEqual(registered, [1, 1, 1, 2, 2 if rank < 2 else 1])

    def test_survive_a_loss(self):
        for losing in (lose, lose_aborted):
            self.assertEqual(ranks.run(losing), [([(1, False)], 1), None])

    def test_take_a_framework_s_group_by_a_source_of_communicators(self):
        self.assertEqual(ranks.run(hook), ["symmetric"] * 2)


class Communicators(unittest.TestCase):
    def test_are_told_in_any_of_the_known_ways(self):
        from commpool.handles import communicator_handle

        backend, newer = SimpleNamespace(_comm_ptr=lambda: 11), SimpleNamespace(comm_ptr=12)
        nccl4py, lazy = SimpleNamespace(ptr=13), SimpleNamespace(_comm_ptr=lambda: 0)
        self.assertEqual([communicator_handle(value) for value in (backend, newer, nccl4py, 14, None)],
                         [11, 12, 13, 14, 0])
        self.assertRaisesRegex(commpool.FailedPrecondition, "has no NCCL communicator yet", communicator_handle, lazy)
        self.assertRaisesRegex(commpool.InvalidArgument, "is no communicator", communicator_handle, object())
