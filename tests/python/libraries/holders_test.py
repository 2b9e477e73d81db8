"""Pools ask other libraries' caches for memory, and never wait for them without a bound."""

import contextlib
import ctypes
import functools
import io
import sys
import threading
import types
import unittest
from unittest import mock

import emulated

import commpool
from commpool import _abi, holders

MIB = emulated.MIB


class Cache:
    """A library that holds as much of the device as a pool, behind its own lock."""

    def __init__(self, nbytes):
        self.lock = threading.RLock()
        self.nbytes, self.pointer = nbytes, self._allocate(nbytes, 0, 0)
        self.releases = 0

    def _allocate(self, nbytes, device, stream):
        emulated.make_current(device)
        pointer = ctypes.c_uint64()
        emulated.check(emulated.cuda().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
        return pointer.value

    def _free(self, pointer, nbytes, device, stream):
        emulated.make_current(device)
        emulated.check(emulated.cuda().cuMemFree_v2(ctypes.c_uint64(pointer)))

    def cached(self, device):
        with self.lock:
            return self.nbytes if device == 0 else 0

    def release(self, device):
        with self.lock:
            self.releases += 1
            if self.nbytes:
                self._free(self.pointer, self.nbytes, 0, 0)
            self.nbytes = 0


class FullDevice(unittest.TestCase):
    def setUp(self):
        emulated.make_current(0)
        self.cache = Cache(100 * MIB)
        self.pool = commpool.Pool("hungry")
        free = ctypes.c_size_t()
        emulated.check(emulated.cuda().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(ctypes.c_size_t())))
        self.filled = self.pool.allocate(free.value - 64 * MIB)

    def tearDown(self):
        self.filled.free()
        self.pool.destroy()
        Cache.release(self.cache, 0)
        commpool.Pool.default(0).trim()


class Holders(FullDevice):
    def holder(self, **words):
        holder = holders.LibraryHolder("a library", self.cache.cached, self.cache.release, **words)
        self.addCleanup(holder.remove)
        return holder

    def test_give_what_a_pool_needs(self):
        holder = self.holder(begin_ms=60000, done_ms=60000)
        self.pool.allocate(120 * MIB).free()
        self.assertEqual((holder.released_bytes, holder.skipped, holder.overtime), (100 * MIB, 0, 0))

    def test_are_named_in_the_error_with_what_they_hold(self):
        self.cache.release = lambda device: None
        self.holder(begin_ms=60000, done_ms=60000)
        with self.assertRaisesRegex(commpool.OutOfMemory, "a library .* 100 MiB"):
            self.pool.allocate(500 * MIB)

    def test_are_skipped_where_a_thread_is_inside_the_librarys_allocator(self):
        holder = self.holder(begin_ms=50, done_ms=60000)
        with self.cache.lock:  # like a library that calls commpool from its allocator
            with self.assertRaises(commpool.OutOfMemory):
                self.pool.allocate(120 * MIB)
        self.assertGreater(holder.skipped, 0)
        self.assertEqual(holder.released_bytes, 0)

    def test_are_skipped_where_the_gil_is_not_to_be_had(self):
        holder = self.holder(begin_ms=50, done_ms=60000)
        path = commpool._library.library.path
        allocate = ctypes.PyDLL(path).commpool_pool_allocate  # keeps the GIL, as a careless extension does
        block = ctypes.c_void_p()
        status = allocate(ctypes.c_uint64(self.pool.handle), ctypes.c_uint64(120 * MIB), None, ctypes.byref(block))
        self.assertEqual(status, commpool.StatusCode.OUT_OF_MEMORY)
        self.assertGreater(holder.skipped, 0)

    def test_that_take_too_long_are_counted_and_give_later(self):
        begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
        release = self.cache.release

        def slow(device):
            begun.set()
            go_on.wait(60)
            release(device)
            done.set()

        self.cache.release = slow
        holder = self.holder(begin_ms=60000, done_ms=50)
        with self.assertRaises(commpool.OutOfMemory):
            self.pool.allocate(120 * MIB)
        self.assertTrue(begun.is_set())
        self.assertEqual(holder.overtime, 1)
        go_on.set()
        self.assertTrue(done.wait(60))
        self.pool.allocate(120 * MIB).free()

    def test_that_raised_are_asked_again(self):
        release, answers = self.cache.release, [ZeroDivisionError, SystemExit]

        def raising(device):
            if answers:
                raise answers.pop()
            release(device)

        self.cache.release = raising
        holder = self.holder(begin_ms=60000, done_ms=60000)
        hook, said = sys.unraisablehook, io.StringIO()
        with contextlib.redirect_stderr(said):
            with self.assertRaises(commpool.OutOfMemory):
                self.pool.allocate(120 * MIB)
            sys.unraisablehook = lambda error: 1 // 0
            try:
                with self.assertRaises(commpool.OutOfMemory):
                    self.pool.allocate(120 * MIB)
            finally:
                sys.unraisablehook = hook
        self.assertRegex(said.getvalue(), "Exception ignored (.|\n)*SystemExit")
        self.pool.allocate(120 * MIB).free()
        self.assertEqual((holder.released_bytes, holder.skipped, holder.overtime), (100 * MIB, 0, 0))

    def test_that_raise_give_nothing(self):
        self.cache.release = lambda device: 1 // 0
        caught = []
        hook, holders.sys.unraisablehook = holders.sys.unraisablehook, caught.append
        try:
            holder = self.holder(begin_ms=60000, done_ms=60000)
            with self.assertRaises(commpool.OutOfMemory):
                self.pool.allocate(120 * MIB)
        finally:
            holders.sys.unraisablehook = hook
        self.assertEqual({error.exc_type for error in caught}, {ZeroDivisionError})
        self.assertEqual(holder.released_bytes, 0)

    def test_are_not_asked_once_removed(self):
        holder = self.holder()
        holder.remove()
        holder.remove()  # a second time does nothing
        with self.assertRaises(commpool.OutOfMemory):
            self.pool.allocate(120 * MIB)
        self.assertEqual((holder.asked, holder.skipped), (0, 0))

    def test_serve_many_threads_that_run_out_at_once(self):
        holder = self.holder(begin_ms=60000, done_ms=60000)
        outcomes = []

        def run():
            try:
                self.pool.allocate(120 * MIB).free()
                outcomes.append("served")
            except commpool.OutOfMemory:
                outcomes.append("refused")

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(outcomes), 4)
        self.assertIn("served", outcomes)
        self.assertEqual(holder.released_bytes, 100 * MIB)


class Libraries(FullDevice):
    """Libraries with a function of their own here, as stand-ins. GPU machines test the real ones."""

    def setUp(self):
        super().setUp()
        patient = functools.partialmethod(holders.LibraryHolder.__init__, begin_ms=60000, done_ms=60000)
        patch = mock.patch.object(holders.LibraryHolder, "__init__", patient)
        patch.start()
        self.addCleanup(patch.stop)

    def served_by(self, holder, given):
        self.addCleanup(holder.remove)
        self.pool.allocate(120 * MIB).free()
        self.assertEqual((holder.released_bytes, holder.skipped, holder.overtime), (given, 0, 0))

    def test_cupys_pool_gives_what_it_holds_of_the_device(self):
        devices = []
        pool = types.SimpleNamespace(free_bytes=lambda: self.cache.cached(devices[-1]),
                                     free_all_blocks=lambda: self.cache.release(devices[-1]))

        @contextlib.contextmanager
        def device(number):
            devices.append(number)
            yield
            devices.append(None)

        cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=device), get_default_memory_pool=lambda: pool)
        with mock.patch.dict(sys.modules, cupy=cupy):
            self.served_by(holders.add_cupy(), 100 * MIB)

    def test_rmms_resources_give_what_lies_in_pools_of_the_driver_below_adaptors(self):
        self.cache.release(0)
        pool, pointer, nothing = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
        cuda = emulated.cuda()
        for_ever, whole = ctypes.c_uint64(2**64 - 1), ctypes.c_size_t(96 * MIB)  # the driver's pools have 32 MiB pages
        emulated.check(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0))
        emulated.check(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(for_ever)))  # the release threshold
        emulated.check(cuda.cuMemAllocAsync(ctypes.byref(pointer), whole, nothing))
        emulated.check(cuda.cuMemFreeAsync(pointer, nothing))
        emulated.check(cuda.cuCtxSynchronize())
        mr = types.ModuleType("rmm.mr")
        mr.CudaAsyncViewMemoryResource = type("View", (), {"pool_handle": lambda self: pool.value})
        view = mr.CudaAsyncViewMemoryResource()
        adaptor = types.SimpleNamespace(get_upstream=lambda: view)
        mr.get_per_device_resource = lambda device: adaptor if device == 0 else None
        with mock.patch.dict(sys.modules, {"rmm": types.ModuleType("rmm"), "rmm.mr": mr}):
            self.served_by(holders.add_rmm(), 96 * MIB)


class RequestSlots(unittest.TestCase):
    """The part in C alone: the answers of its two functions to threads without the GIL."""

    def test_answer_each_request_for_itself_however_they_meet(self):
        slots = holders._slots()
        slot = slots.commpool_slot_new(1, 1)
        context = ctypes.addressof(slot.contents)
        ask_cached = _abi.CachedBytes(("commpool_slot_cached_bytes", slots))
        ask_release = _abi.Release(("commpool_slot_release", slots))
        wrong = []

        def serve():
            while slots.commpool_slot_take(slot):
                request = slot.contents
                answer = request.bytes * 8 + request.device if request.release else request.device + 1
                if slots.commpool_slot_begin(slot):
                    slots.commpool_slot_finish(slot, answer)

        def ask(first):
            for number in range(first, first + 300):
                device = number % 8
                if ask_release(device, number, context) not in (0, number * 8 + device):
                    wrong.append(number)
                if ask_cached(device, context) not in (0, device + 1):
                    wrong.append(-number)

        server = threading.Thread(target=serve)
        server.start()
        threads = [threading.Thread(target=ask, args=(1000 * first,)) for first in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        slots.commpool_slot_close(slot)
        server.join()
        self.assertEqual(wrong, [])
        self.assertEqual(ask_cached(0, context), 0)  # the slot is closed


if __name__ == "__main__":
    unittest.main()
