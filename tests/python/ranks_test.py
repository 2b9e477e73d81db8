"""Symmetric and registered pools over several processes, on the emulated NCCL."""

import ctypes
import threading
import unittest

import emulated
import commpool
import ranks
from emulated import MIB, cuda

_FLOAT, _SUM = 7, 0


def all_reduce(job, array, value):
    """Sums every rank's `value` in the array; returns its first element."""
    check, pointer = emulated.check, ctypes.c_void_p(array.pointer)
    count = array.nbytes // 4
    bits = ctypes.c_uint.from_buffer(ctypes.c_float(value)).value
    check(cuda().cuMemsetD32Async(ctypes.c_uint64(array.pointer), bits, ctypes.c_size_t(count), None))
    check(emulated.nccl().ncclAllReduce(pointer, pointer, ctypes.c_size_t(count), _FLOAT, _SUM,
                                        ctypes.c_void_p(job.communicator.ptr), None))
    result = ctypes.c_float()
    check(cuda().cuMemcpyDtoH_v2(ctypes.byref(result), ctypes.c_uint64(array.pointer), ctypes.c_size_t(4)))
    return result.value


def train(job):
    pool = commpool.Pool("gradients", device=job.device, symmetric_across=job.communicator, reserve="16MiB")
    with commpool.use_pool(pool):
        arrays = [commpool.empty(MIB, device=job.device) for _ in range(2)]
    places = [pool.window_of(array, job.communicator) for array in arrays]
    total = all_reduce(job, arrays[1], 1.0 + job.rank)
    eligible = pool.nvls_eligible(arrays[0], arrays[0].nbytes, job.communicator)
    pool.verify()
    del arrays
    reclaimed = pool.reclaim()
    mode, lost = pool.mode, pool.lost_rank()
    pool.close()
    job.communicator.end()
    offsets = [place.offset for place in places]
    return total, offsets, places[0].handle != 0, reclaimed, mode, lost, bool(eligible.reason)


def overflow(job):
    pool = commpool.Pool("full", device=job.rank, symmetric_across=job.communicator, reserve="2MiB")
    try:
        pool.allocate("4MiB")
    except commpool.Exhausted as error:
        pool.reserve("4MiB")
        pool.allocate("4MiB").free()
        pool.close()
        return str(error)


def diverge(job):
    pool = commpool.Pool("diverging", device=job.rank, symmetric_across=job.communicator, reserve="8MiB")
    buffers = [pool.allocate(MIB * (1 + job.rank))]
    try:
        pool.verify()
    except commpool.Disagreement as error:
        buffers[0].free()
        pool.close()
        return str(error)


_REFUSED = [({"limit": "2 apples"}, "limit '2 apples' is no size"),
            ({"mode": "elastic"}, "mode 'elastic' is none of "),
            ({"reserve": "much"}, "reserve 'much' is no size"),
            ({"device": "cpu"}, "device 'cpu' is no CUDA device"),
            ({"peers": ["cuda:x"]}, "peers 'cuda:x' is no CUDA device"),
            ({"all_gather": 5}, "all_gather 5 is no commpool.Agreement"),
            ({"limitt": "2GiB"}, "Pool() got an unexpected keyword argument 'limitt': the nearest is limit")]
# Calls of a pool: with what rank 1 gives, which it refuses so; with what the other gives, which then hears so.
_REFUSED_CALLS = [(lambda pool, wrong, _: pool.sleep("hots" if wrong else "host", graphs="discarded"),
                   "keep 'hots' is none of discard, host, pageable, files", "keep -1 is none of DISCARD, HOST"),
                  (lambda pool, wrong, _: pool.sleep(directory=5 if wrong else None, graphs="discarded"),
                   "belong together", "keep -1 is none of DISCARD, HOST"),
                  (lambda pool, wrong, _: pool.sleep(constant=5 if wrong else (), graphs="discarded"),
                   "constant 5 is no list", "keep -1 is none of DISCARD, HOST"),
                  (lambda _, wrong, __: commpool.sleep(tag="refused", keep="hots" if wrong else "host",
                                                     graphs="discarded"),
                   "keep 'hots' is none of", "keep -1 is none of DISCARD, HOST"),
                  (lambda pool, wrong, _: pool.reserve("much" if wrong else "2MiB"), "'much' is no size",
                   "ranks disagree on the bytes of reserve"),
                  (lambda pool, wrong, _: pool.trim("much" if wrong else 0), "keep 'much' is no size",
                   "ranks disagree on the bytes of trim"),
                  (lambda pool, wrong, home: pool.register_with(object() if wrong else home), "is no communicator",
                   "ranks disagree on the communicator"),
                  (lambda pool, wrong, home: pool.deregister(object() if wrong else home), "is no communicator",
                   "ranks disagree on the communicator"),
                  (lambda pool, wrong, _: pool.sleep(graphs="some" if wrong else "discarded"),
                   "graphs 'some' is none of", "keep -1 is none of DISCARD, HOST")]


def refuse(job):
    """Rank 1 alone passes invalid arguments."""
    said = []

    def attempt(call):
        try:
            call()
        except Exception as error:
            said.append(str(error))

    for wrong, _ in _REFUSED:
        given = {"device": job.device, **(wrong if job.rank == 1 else {})}
        attempt(lambda: commpool.Pool(symmetric_across=job.communicator, deadline_ms=5000, **given))
    with commpool.Pool(device=job.device, symmetric_across=job.communicator, deadline_ms=5000, tag="refused") as pool:
        for call, *_ in _REFUSED_CALLS:
            attempt(lambda: call(pool, job.rank == 1, job.communicator))
        pool.reserve("2MiB")
    return said


def agree(job):
    """The ranks agree through the test's own gathering instead of TCP."""
    rounds = []

    def all_gather(sent):
        rounds.append(len(sent))
        return job.gather(sent)

    pool = commpool.Pool(device=job.rank, symmetric_across=job.communicator, reserve="2MiB",
                         all_gather=commpool.Agreement(all_gather, job.ranks))
    pool.close()
    return len(rounds)


def miscount(job):
    def all_gather(sent):
        return job.gather(sent)[:1]

    try:
        commpool.Pool(device=job.rank, symmetric_across=job.communicator,
                      all_gather=commpool.Agreement(all_gather, job.ranks))
    except commpool.CommpoolError as error:
        return str(error)


def miss(job):
    def all_gather(sent):
        raise commpool.RankMissing(1 - job.rank)

    try:
        commpool.Pool(device=job.rank, symmetric_across=job.communicator,
                      all_gather=commpool.Agreement(all_gather, job.ranks))
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
    pool = commpool.Pool("both", device=job.rank, symmetric_across=job.communicator, reserve="2MiB")
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

    pool = commpool.Pool("left", device=job.rank, symmetric_across=job.communicator, reserve="2MiB",
                         deadline_ms=20000, on_lost_rank=on_lost_rank)
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


def lose_aborted(job):
    return lose(job, alive=False)


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
        self.check(ranks.run(train))

    def test_do_so_where_each_sees_its_own_device_only(self):
        self.check(ranks.run(train, alone=True))

    def check(self, results):
        for result in results:
            total, offsets, has_window, reclaimed, mode, lost, tells = result
            self.assertEqual((total, offsets), (3.0, [0, 4 * MIB]))
            self.assertEqual((has_window, reclaimed, mode, lost, tells), (True, 8 * MIB, "symmetric", None, True))

    def test_hear_what_to_reserve_when_a_pool_is_full(self):
        first, second = ranks.run(overflow)
        self.assertRegex(first, r"On every rank: reserve\(4194304\), which is 4 MiB$")
        self.assertEqual(first.replace("device 0", "device 1"), second)

    def test_hear_the_first_call_that_differs(self):
        for sentence in ranks.run(diverge):
            self.assertRegex(sentence, "rank 0 made allocate 1,048,576 bytes .*rank 1 made allocate 2,097,152 bytes")

    def test_hear_what_one_of_them_refuses(self):
        first, second = ranks.run(refuse)
        wanted = [(reason, f"rank 1 cannot create: {reason}") for _, reason in _REFUSED]
        wanted += [(reason, told) for _, reason, told in _REFUSED_CALLS]
        self.assertEqual((len(first), len(second)), (len(wanted),) * 2, (first, second))
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
            self.survives(losing)

    def survives(self, losing):
        left, died = ranks.run(losing)
        self.assertEqual((left, died), (([(1, False)], 1), None))

    def test_take_a_framework_s_group_by_a_source_of_communicators(self):
        self.assertEqual(ranks.run(hook), ["symmetric"] * 2)


class Communicators(unittest.TestCase):
    def test_are_told_in_any_of_the_known_ways(self):
        from commpool.handles import communicator_handle

        class Backend:
            def _comm_ptr(self):
                return 11

        class Newer:
            comm_ptr = 12

        class Nccl4py:
            ptr = 13

        class Lazy:
            def _comm_ptr(self):
                return 0

        self.assertEqual([communicator_handle(value) for value in (Backend(), Newer(), Nccl4py(), 14, None)],
                         [11, 12, 13, 14, 0])
        with self.assertRaisesRegex(commpool.FailedPrecondition, "has no NCCL communicator yet"):
            communicator_handle(Lazy())
        with self.assertRaisesRegex(commpool.InvalidArgument, "is no communicator"):
            communicator_handle(object())


if __name__ == "__main__":
    unittest.main()
