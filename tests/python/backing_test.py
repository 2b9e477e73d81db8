"""A program's own functions as the backing of pools, from a shared library and in Python."""

import ctypes
import gc
import itertools
import os
import unittest
import weakref
from unittest import mock

import emulated
import commpool
from emulated import MIB, cuda

_LIBRARY = os.path.join(emulated.REPOSITORY, "tests/python/plain_allocator.so")


class Recorder:
    """cudaMalloc in Python; it notes the arguments of its calls."""

    def __init__(self):
        self.live, self.asked = {}, []
        self.backing = commpool.UserBacking(self.allocate, self.free)

    def allocate(self, count, device, stream):
        self.asked.append((count, device, stream))
        address = ctypes.c_uint64()
        if cuda().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count)) != 0:
            return None
        self.live[address.value] = count
        return address.value

    def free(self, pointer, count, device, stream):
        assert self.live.pop(pointer) == count
        emulated.check(cuda().cuMemFree_v2(ctypes.c_uint64(pointer)))


def backed_by(allocate):
    """A pool whose memory is nobody's business."""
    return commpool.Pool(backing=commpool.UserBacking(allocate, lambda *_: None))


class SharedLibraries(unittest.TestCase):
    def test_make_segments_with_caching_and_statistics_on_top(self):
        library = ctypes.CDLL(_LIBRARY)
        backing = commpool.UserBacking.load(_LIBRARY, allocate="special_make", free="special_drop")
        made, freed = library.count_of_made(), library.count_of_freed()
        with commpool.Pool("special", backing=backing) as pool:
            for _ in range(100):
                with commpool.use_pool(pool):
                    commpool.allocate(MIB, device=0)
            statistics = pool.stats()
            self.assertEqual((statistics.allocated_blocks.total, library.count_of_made() - made), (100, 1))
            self.assertEqual(statistics.reserved_bytes.current, 2 * MIB)
        self.assertEqual(library.count_of_freed() - freed, 1)

    def test_that_are_not_there_are_named(self):
        self.assertRaisesRegex(commpool.NotFound, "no/such.so", commpool.UserBacking.load, "no/such.so")
        with self.assertRaisesRegex(commpool.NotFound, "undefined symbol: my_free"):
            commpool.UserBacking.load(_LIBRARY, "special_make", "my_free")

    def test_give_addresses_as_well(self):
        library = ctypes.CDLL(_LIBRARY)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value
                     for function in (library.special_make, library.special_drop)]
        pool = commpool.Pool(backing=commpool.UserBacking(*addresses))
        made = library.count_of_made()
        pool.allocate(MIB)
        self.assertEqual(library.count_of_made(), made + 1)


class Callables(emulated.Case):
    def test_make_segments(self):
        recorder = Recorder()
        with commpool.Pool(device=1, backing=recorder.backing) as pool:
            buffers = [pool.allocate(512) for _ in range(10)]
            self.assertEqual([device for _, device, _ in recorder.asked], [1])
            self.assertEqual(sum(recorder.live.values()), pool.stats().reserved_bytes.current)
            del buffers
        self.assertEqual(recorder.live, {})

    def test_may_take_fewer_values_and_return_pointers(self):
        recorder = Recorder()

        def allocate(size):
            return ctypes.c_void_p(recorder.allocate(size, 0, 0))

        def free(pointer):
            recorder.free(int(pointer), recorder.live[pointer], 0, 0)

        with commpool.Pool(backing=commpool.UserBacking(allocate, free)) as pool:
            pool.allocate(MIB)
            self.assertEqual(sum(recorder.live.values()), pool.stats().reserved_bytes.current)
        self.assertEqual(recorder.live, {})
        with self.assertRaisesRegex(commpool.OutOfMemory, "returned null"):
            commpool.Pool(backing=commpool.UserBacking(lambda size: ctypes.c_void_p(), free)).allocate(MIB)

    def test_that_cannot_be_called_so_are_refused(self):
        for allocate in (lambda size, device, stream, more: 0, lambda size, *, kind: 0):
            self.assertInvalid("cannot be called with bytes, device, stream", commpool.UserBacking, allocate, print)

    def test_stay_as_long_as_a_block_lives(self):
        recorder = Recorder()
        seen = weakref.ref(recorder)
        buffer = commpool.Pool(backing=recorder.backing).allocate(MIB)
        live = recorder.live
        del recorder
        gc.collect()
        self.assertIsNotNone(seen())
        self.assertEqual(len(live), 1)
        buffer.free()
        self.assertEqual(live, {})

    def test_that_raise_are_out_of_memory_with_the_exception_as_the_cause(self):
        pool = backed_by(mock.Mock(side_effect=RuntimeError("the disk is on fire")))
        with self.assertRaisesRegex(commpool.OutOfMemory, r"the user's allocate function .*\n?"
                                    r"(.|\n)*raised RuntimeError: the disk is on fire") as caught:
            pool.allocate(MIB)
        self.assertIsInstance(caught.exception.__cause__, RuntimeError)
        with self.assertRaises(commpool.NotFound) as later:
            commpool.free(64)
        self.assertIsNone(later.exception.__cause__)

    def test_that_are_interrupted_end_the_program_as_ever(self):
        for exception in (KeyboardInterrupt, SystemExit):
            pool = backed_by(mock.Mock(side_effect=exception))
            self.assertRaises(exception, pool.allocate, MIB)
            self.assertEqual(pool.stats().reserved_bytes.current, 0)

    def test_that_raised_once_are_not_the_cause_of_what_follows(self):
        answers = itertools.chain([RuntimeError("only once")], itertools.repeat(None))
        pool = backed_by(mock.Mock(side_effect=answers))
        for _ in range(2):
            with self.assertRaises(commpool.OutOfMemory) as caught:
                pool.allocate(MIB)
        self.assertIsNone(caught.exception.__cause__)

    def test_that_return_nothing_are_out_of_memory(self):
        self.assertRaisesRegex(commpool.OutOfMemory, "returned null", backed_by(lambda *_: None).allocate, MIB)

    def test_that_return_no_address_are_named(self):
        self.assertRaisesRegex(commpool.OutOfMemory, "raised TypeError", backed_by(lambda *_: "memory").allocate, MIB)

    def test_whose_free_raises_lose_nothing_else(self):
        recorder, unraisable = Recorder(), self.hear_unraisable()

        def free(*arguments):
            recorder.free(*arguments)
            raise ValueError("afterwards")

        with commpool.Pool(backing=commpool.UserBacking(recorder.allocate, free)) as pool:
            pool.allocate(MIB).free()
        self.assertEqual((recorder.live, str(unraisable[0].exc_value)), ({}, "afterwards"))

    def test_may_not_call_the_library(self):
        pool = backed_by(lambda count, device, stream: commpool.allocate(count, device=device).release())
        self.assertRaisesRegex(commpool.OutOfMemory, "raised FailedPrecondition", pool.allocate, MIB)

    def test_have_to_be_callable(self):
        self.assertInvalid("'malloc' is no function", commpool.UserBacking, "malloc", "free")
