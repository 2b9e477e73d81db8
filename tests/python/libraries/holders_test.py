"""Pools ask other libraries' caches for memory, and never wait for them without a bound."""

import concurrent.futures
import contextlib
import ctypes
import functools
import gc
import sys
import threading
import types
import unittest
import weakref
from unittest import mock

import below
import emulated

import commpool
from commpool import _abi, holders

MIB = emulated.MIB


class Cache:
    """A library that holds as much of the device as a pool, behind its own lock."""

    def __init__(self, nbytes):
        self.lock, self.nbytes, self.pointer = threading.RLock(), nbytes, below.allocate(nbytes)

    def cached(self, device):
        with self.lock:
            return self.nbytes if device == 0 else 0

    def release(self, device):
        with self.lock:
            if self.nbytes:
                emulated.make_current(0)
                below.free(self.pointer)
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

    def check_served(self, holder, given=100 * MIB):
        """The pool finds memory, of which the holder gave so much."""
        self.pool.allocate(120 * MIB).free()
        self.assertEqual((holder.released_bytes, holder.skipped, holder.overtime), (given, 0, 0))

    def check_refused(self):
        self.assertRaises(commpool.OutOfMemory, self.pool.allocate, 120 * MIB)


class Holders(FullDevice):
    def holder(self, begin_ms=60000, done_ms=60000):
        holder = holders.LibraryHolder("a library", self.cache.cached, self.cache.release, begin_ms=begin_ms,
                                       done_ms=done_ms)
        self.addCleanup(holder.remove)
        return holder

    def test_give_what_a_pool_needs(self):
        self.check_served(self.holder())

    def test_are_named_in_the_error_with_what_they_hold(self):
        self.cache.release = lambda device: None
        self.holder()
        with self.assertRaisesRegex(commpool.OutOfMemory, "a library .* 100 MiB"):
            self.pool.allocate(500 * MIB)

    def test_are_skipped_where_a_thread_is_inside_the_librarys_allocator(self):
        holder = self.holder(begin_ms=50)
        with self.cache.lock:  # like a library that calls commpool from its allocator
            self.check_refused()
        self.assertGreater(holder.skipped, 0)
        self.assertEqual(holder.released_bytes, 0)

    def test_are_skipped_where_the_gil_is_not_to_be_had(self):
        holder = self.holder(begin_ms=50)
        # PyDLL keeps the GIL, as a careless extension does.
        allocate = ctypes.PyDLL(commpool._library.library.path).commpool_pool_allocate
        status = allocate(ctypes.c_uint64(self.pool.handle), ctypes.c_uint64(120 * MIB), None,
                          ctypes.byref(ctypes.c_void_p()))
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
        holder = self.holder(done_ms=50)
        self.check_refused()
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
        holder = self.holder()
        self.assertRegex(below.said_in_python(self.check_refused), "Exception ignored (.|\n)*SystemExit")
        with mock.patch.object(sys, "unraisablehook", lambda error: 1 // 0):
            below.said_in_python(self.check_refused)
        self.check_served(holder)

    def test_that_raise_give_nothing(self):
        self.cache.release = lambda device: 1 // 0
        holder, caught = self.holder(), []
        with mock.patch.object(sys, "unraisablehook", caught.append):
            self.check_refused()
        self.assertEqual({error.exc_type for error in caught}, {ZeroDivisionError})
        self.assertEqual(holder.released_bytes, 0)

    def test_are_not_asked_once_removed(self):
        holder = self.holder()
        holder.remove()
        holder.remove()  # a second time does nothing
        self.check_refused()
        self.assertEqual((holder.asked, holder.skipped), (0, 0))

    def test_that_raise_or_answer_less_than_nothing_hide_no_other(self):
        def give(device, count):
            self.cache.nbytes = below.free(self.cache.pointer) or 0
            return 100 * MIB

        add, caught = commpool.MemoryHolder, []
        with (mock.patch.object(sys, "unraisablehook", caught.append), add(release=lambda *_: 1 // 0),
              add(release=lambda *_: -1), add(release=give)):
            self.pool.allocate(120 * MIB).free()
        self.assertEqual({error.exc_type for error in caught}, {ZeroDivisionError})

    def test_live_until_they_are_removed(self):
        def answer(*_):
            return 0

        kept, holder = weakref.ref(answer), commpool.MemoryHolder(cached_bytes=answer, release=answer)
        del answer
        gc.collect()
        self.assertIsNotNone(kept())
        holder.remove()
        gc.collect()
        self.assertIsNone(kept())

    def test_serve_many_threads_that_run_out_at_once(self):
        holder, together = self.holder(), threading.Barrier(4)

        def run():
            together.wait()  # so each has a thread
            self.pool.allocate(120 * MIB).free()

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(run) for _ in range(4)]
        errors = [run.exception() for run in runs]
        self.assertIn(None, errors, "one is served at least")
        self.assertLessEqual({type(error) for error in errors}, {type(None), commpool.OutOfMemory})
        self.assertEqual(holder.released_bytes, 100 * MIB)


class Libraries(FullDevice):
    """Libraries with a function of their own here, as stand-ins. GPU machines test the real ones."""

    def setUp(self):
        super().setUp()
        patient = functools.partialmethod(holders.LibraryHolder.__init__, begin_ms=60000, done_ms=60000)
        self.enterContext(mock.patch.object(holders.LibraryHolder, "__init__", patient))

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
        with mock.patch.dict(sys.modules, cupy=cupy), holders.add_cupy() as holder:
            self.check_served(holder)

    def test_rmms_resources_give_what_lies_in_pools_of_the_driver_below_adaptors(self):
        self.cache.release(0)
        pool = below.pool_that_keeps(96 * MIB)
        mr = types.ModuleType("rmm.mr")
        mr.CudaAsyncViewMemoryResource = type("View", (), {"pool_handle": lambda self: pool})
        view = mr.CudaAsyncViewMemoryResource()
        adaptor = types.SimpleNamespace(get_upstream=lambda: view)
        mr.get_per_device_resource = lambda device: adaptor if device == 0 else None
        modules = {"rmm": types.ModuleType("rmm"), "rmm.mr": mr}
        with mock.patch.dict(sys.modules, modules), holders.add_rmm() as holder:
            self.check_served(holder, 96 * MIB)


class RequestSlots(unittest.TestCase):
    """The part in C alone: the answers of its two functions to threads without the GIL."""

    def test_answer_each_request_for_itself_however_they_meet(self):
        slots = holders._slots()
        slot = slots.commpool_slot_new(1, 1)
        context = ctypes.addressof(slot.contents)
        ask_cached = _abi.CachedBytes(("commpool_slot_cached_bytes", slots))
        ask_release = _abi.Release(("commpool_slot_release", slots))
        wrong, together = [], threading.Barrier(4)

        def serve():
            while slots.commpool_slot_take(slot):
                request = slot.contents
                answer = request.bytes * 8 + request.device if request.release else request.device + 1
                if slots.commpool_slot_begin(slot):
                    slots.commpool_slot_finish(slot, answer)

        def ask(first):
            together.wait()
            for number in range(first, first + 300):
                device = number % 8
                if ask_release(device, number, context) not in (0, number * 8 + device):
                    wrong.append(number)
                if ask_cached(device, context) not in (0, device + 1):
                    wrong.append(-number)

        server = threading.Thread(target=serve)
        server.start()
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(ask, range(1000, 5000, 1000)))
        slots.commpool_slot_close(slot)
        server.join()
        self.assertEqual(wrong, [])
        self.assertEqual(ask_cached(0, context), 0)  # the slot is closed
