"""CuPy's arrays in pools, through stand_ins/cupy.py, in C and in Python alike."""

import concurrent.futures
import gc
import sys
import threading
import unittest
from unittest import mock

import below
import emulated

sys.path.insert(0, "tests/python/libraries/stand_ins")

import commpool  # noqa: E402
import commpool.cupy as adapter  # noqa: E402
import cupy  # noqa: E402


class Cases:
    path = ""

    def setUp(self):
        emulated.make_current(0)
        self.pool = commpool.Pool("shared", limit="64MiB")
        self.allocate = adapter.allocator(self.pool, path=self.path)

    def tearDown(self):
        cupy.DEVICE[0] = cupy.STREAM[0] = 0
        gc.collect()
        self.assertEqual(emulated.reports(), (0, ""))

    def test_arrays_lie_in_the_pool_and_go_back(self):
        memory = self.allocate(1000)
        self.assertEqual(commpool.block_of(memory.ptr).pool, self.pool.handle)
        self.assertEqual(self.pool.stats().requested_bytes.current, 1000)
        del memory
        self.assertEqual(self.pool.stats().allocated_blocks.current, 0)
        self.assertEqual(self.allocate(0).ptr, 0)

    def test_they_are_of_the_current_stream(self):
        cupy.STREAM[0] = emulated.Stream().handle
        memory = self.allocate(1000)
        self.assertEqual(commpool.block_of(memory.ptr).stream, cupy.STREAM[0])

    def test_without_memory_both_libraries_exceptions_are_raised(self):
        for kind in (cupy.OutOfMemoryError, commpool.OutOfMemory, MemoryError):
            with self.assertRaisesRegex(kind, "no memory for 100 MiB in pool shared"):
                self.allocate(100 << 20)

    def test_another_device_than_the_pools_is_refused(self):
        cupy.DEVICE[0] = 1
        with self.assertRaisesRegex(commpool.InvalidArgument, "shared is of device 0, and CuPy's current one is 1"):
            self.allocate(1000)

    def test_without_a_pool_scopes_decide(self):
        allocate = adapter.allocator(path=self.path)
        with commpool.use_pool(self.pool):
            inside = allocate(1000)
        outside = allocate(1000)
        self.assertEqual(commpool.block_of(inside.ptr).pool, self.pool.handle)
        self.assertEqual(commpool.block_of(outside.ptr).pool, commpool.Pool.default(0).handle)

    def test_they_outlive_their_pool_which_then_serves_no_more(self):
        memory = self.allocate(1000)
        start = memory.ptr
        self.pool.destroy()
        with self.assertRaisesRegex(commpool.NotFound, "was destroyed"):
            self.allocate(1000)
        del memory
        self.assertIsNone(commpool.block_of(start))

    def test_two_libraries_share_one_statistic(self):
        theirs, ours = self.allocate(1000), commpool.empty(250, "float32", pool=self.pool)
        statistics = self.pool.stats()
        self.assertEqual((statistics.requested_bytes.current, statistics.allocated_blocks.current), (2000, 2))
        del theirs, ours
        statistics = self.pool.stats()
        self.assertEqual((statistics.requested_bytes.peak, statistics.allocated_blocks.total), (2000, 2))

    def test_a_block_that_is_gone_already_is_said(self):
        held = [self.allocate(1000)]
        commpool.free(held[0].ptr)
        self.assertIn("commpool: CuPy cannot free", self.said_by(held.clear))

    def test_memory_of_another_allocator_is_kept_and_that_is_said(self):
        foreign, held = below.allocate(4096), [self.allocate(1000)]
        own, held[0].mem.ptr = held[0].ptr, foreign
        self.assertIn("commpool: CuPy cannot free", self.said_by(held.clear))
        self.assertEqual(self.pool.stats().allocated_blocks.current, 1)
        commpool.free(own)
        below.free(foreign)

    def test_a_block_of_another_pool_goes_back_to_that_pool(self):
        other = commpool.Pool("other")
        held = [self.allocate(1000)]
        own, held[0].mem.ptr = held[0].ptr, adapter._adapters.allocate(other, 0, 1000, 0)
        held.clear()
        self.assertEqual(other.stats().allocated_blocks.current, 0)
        self.assertEqual(self.pool.stats().allocated_blocks.current, 1)
        commpool.free(own)

    def test_other_threads_run_while_one_waits_for_memory(self):
        """An allocation calls a backing in Python. Another thread makes that call, and needs the GIL for it."""
        backing = commpool.UserBacking(lambda nbytes, device, stream: below.allocate(nbytes), lambda *_: None)
        allocate = adapter.allocator(commpool.Pool("python", backing=backing), path=self.path)
        together = threading.Barrier(4)

        def allocate_at_once(nbytes):
            together.wait()  # so each has a thread
            return allocate(nbytes)

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            found = list(threads.map(allocate_at_once, [4 << 20] * 4, timeout=60))
        self.assertEqual(len({memory.ptr for memory in found}), 4)


class InC(Cases, unittest.TestCase):
    path, said_by = "c", staticmethod(below.said_in_c)

    def test_is_what_auto_takes(self):
        self.assertEqual(adapter.why_not_c(), "")

    def test_is_refused_where_cupys_function_has_another_signature(self):
        from cupy_backends.cuda import stream

        with mock.patch.dict(stream.__pyx_capi__, {"get_current_stream_ptr": object()}):
            self.assertIn("no get_current_stream_ptr in C", adapter.why_not_c())
            with self.assertRaises(commpool.NotSupported):
                adapter.allocator(self.pool, path="c")
            memory = adapter.allocator(self.pool)(1000)  # in Python
            self.assertEqual(commpool.block_of(memory.ptr).pool, self.pool.handle)


class InPython(Cases, unittest.TestCase):
    path, said_by = "python", staticmethod(below.said_in_python)


class Arguments(unittest.TestCase):
    def test_that_are_wrong_are_refused(self):
        with self.assertRaisesRegex(commpool.InvalidArgument, "no commpool.Pool"):
            adapter.allocator(3)
        with self.assertRaisesRegex(commpool.InvalidArgument, "none of auto, c, python"):
            adapter.allocator(path="fast")
