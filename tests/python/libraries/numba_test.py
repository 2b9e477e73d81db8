"""Numba's device arrays in pools: the real Numba on the emulated driver. Arrays need no GPU; kernels would."""

import subprocess
import sys
import unittest
from unittest import mock

import below
import emulated
import libraries

import commpool


def arrays():
    import numba.cuda

    return numba.cuda


@libraries.needed
class NumbaArrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        libraries.add()
        commpool.initialize("emulated")
        import commpool.numba as adapter

        cls.adapter = adapter
        adapter.use(None)  # Numba uses this manager before its first use of CUDA

    def setUp(self):
        self.pool = commpool.Pool("shared", limit="64MiB")
        self.adapter.use(self.pool)

    def tearDown(self):
        self.flush()
        self.adapter.use(None)
        self.assertEqual(emulated.reports(), (0, ""))

    def flush(self):
        arrays().current_context().memory_manager.deallocations.clear()

    def blocks(self):
        return self.pool.stats().allocated_blocks.current

    def test_lie_in_the_pool_and_hold_what_is_copied(self):
        import numpy

        numbers = numpy.arange(1000, dtype="int64")
        on_device = arrays().to_device(numbers)
        self.assertEqual(commpool.block_of(on_device).pool, self.pool.handle)
        self.assertTrue((on_device.copy_to_host() == numbers).all())
        self.assertEqual(self.pool.stats().requested_bytes.current, 8000)

    def test_go_back_behind_one_wait_for_several(self):
        kept = [arrays().device_array(1000, "uint8") for _ in range(5)]
        waits = emulated.cuda().commpoolEmulatorCallCount
        waits.restype = emulated.ctypes.c_uint64
        before = waits(b"cuCtxSynchronize")
        kept.clear()
        self.assertEqual(self.blocks(), 5)
        self.flush()
        self.assertEqual((self.blocks(), waits(b"cuCtxSynchronize") - before), (0, 1))

    def test_go_back_behind_no_wait_that_has_not_ended_or_has_failed(self):
        context = mock.Mock()
        frees = self.adapter._Frees(context)
        first, second, third = [frees.note(self.adapter._adapters.allocate(self.pool, 0, 1000, 0)) for _ in range(3)]

        def wait():  # meanwhile another thread frees, which waits itself
            context.synchronize.side_effect = [None]
            frees(second)
            self.assertEqual((context.synchronize.call_count, self.blocks()), (2, 2))
            raise RuntimeError("the wait failed")

        context.synchronize.side_effect = wait
        with self.assertRaisesRegex(RuntimeError, "the wait failed"):
            frees(first)
        self.assertEqual(self.blocks(), 2)
        frees(third)  # noted before the wait that has ended, as the first one was
        self.assertEqual(self.blocks(), 0)
        fourth = frees.note(self.adapter._adapters.allocate(self.pool, 0, 1000, 0))
        context.synchronize.side_effect = RuntimeError("the wait failed")
        for free in (lambda: frees(fourth), frees.free):
            with self.assertRaises(RuntimeError):
                free()
        self.assertEqual((context.synchronize.call_count, self.blocks()), (4, 1))
        context.synchronize.side_effect = None
        frees.free()
        self.assertEqual(self.blocks(), 0, "Numba has forgotten it")

    def test_may_be_freed_while_another_stream_works_on_them(self):
        busy, next_one = arrays().stream(), arrays().stream()
        array = arrays().device_array(1 << 20, "uint8")
        arrays().driver.device_memset(array, 1, 1 << 20, stream=busy)
        start = array.device_ctypes_pointer.value
        del array
        self.flush()
        array = arrays().device_array(1 << 20, "uint8")
        self.assertEqual(array.device_ctypes_pointer.value, start)
        arrays().driver.device_memset(array, 2, 1 << 20, stream=next_one)
        next_one.synchronize()  # the emulator would report a race

    def test_may_be_used_at_once_on_streams_that_wait_for_no_other(self):
        earlier, later = emulated.Stream(), emulated.Stream()
        commpool.promise_stream(earlier)
        block = self.pool.allocate(64 << 20, earlier)
        earlier.fill(block)
        block.free()
        array = arrays().device_array(64 << 20, "uint8")
        arrays().driver.device_memset(array, 2, 64 << 20, stream=arrays().external_stream(later.handle))
        later.synchronize()  # the emulator would report a race
        commpool.release_stream(earlier)

    def test_take_freed_memory_before_they_fail(self):
        array = arrays().device_array(40 << 20, "uint8")
        del array  # Numba keeps it
        array = arrays().device_array(40 << 20, "uint8")
        with self.assertRaisesRegex(MemoryError, "no memory for 40 MiB in pool shared"):
            arrays().device_array(40 << 20, "uint8")
        self.assertEqual(self.pool.stats().failed_allocations, 2)  # one that was served then, and the last

    def said_when_freed(self, held):
        return below.said_in_python(lambda: (held.clear(), self.flush()))

    def test_of_another_allocator_are_kept_and_that_is_said(self):
        kept, foreign = arrays().device_array(1000, "uint8"), below.allocate(4096)
        manager = arrays().current_context().memory_manager
        manager.allocations[foreign] = foreign  # acts as if it were an array's
        held = [manager._finalizer(foreign, 4096)]
        held[0]()
        self.assertIn("commpool: Numba cannot free", self.said_when_freed(held))
        self.assertEqual((self.blocks(), commpool.block_of(kept).pool), (1, self.pool.handle))
        below.free(foreign)

    def test_that_are_gone_already_are_said(self):
        held = [arrays().device_array(1000, "uint8")]
        commpool.free(held[0].device_ctypes_pointer.value)
        self.assertIn("commpool: Numba cannot free", self.said_when_freed(held))

    def test_follow_scopes_where_no_pool_is_named(self):
        self.adapter.use(None)
        with commpool.use_pool(self.pool):
            array = arrays().device_array(1000, "uint8")
        self.assertEqual(commpool.block_of(array).pool, self.pool.handle)

    def test_follow_scopes_on_the_device_that_is_named(self):
        pool = commpool.Pool("one", device=1)
        with arrays().gpus[1]:
            for named, served in ((pool, True), (None, False)):
                self.adapter.use(named, "cuda:1")
                self.assertEqual(arrays().device_array(10) in pool, served)
        self.assertRaisesRegex(commpool.InvalidArgument, "there is no device 99", self.adapter.use, None, 99)

    def test_that_somebody_else_freed_are_said_and_nothing_is_lost(self):
        held, beside = [arrays().device_array(1000, "uint8")], arrays().device_array(1000, "uint8")
        commpool.free(held[0].device_ctypes_pointer.value)
        self.assertRegex(self.said_when_freed(held), "commpool: Numba cannot free 0x[0-9a-f]+: ")
        self.assertEqual((self.blocks(), commpool.block_of(beside).pool), (1, self.pool.handle))

    def test_whose_place_another_pool_s_block_took_give_that_one_back(self):
        """As README says: Numba's frees accept blocks of any pool."""
        other, held = commpool.Pool("other"), [arrays().device_array(1000, "uint8")]
        theirs = self.adapter._adapters.allocate(other, 0, 1000, 0)
        allocations = arrays().current_context().memory_manager.allocations
        own = held[0].device_ctypes_pointer.value
        with mock.patch.object(self.adapter._Frees, "note", lambda _, pointer: (1, theirs)):
            self.assertEqual(self.said_when_freed(held), "")
        self.assertEqual((other.stats().allocated_blocks.current, self.blocks()), (0, 1))
        self.assertNotIn(own, allocations)
        commpool.free(own)

    def test_outlive_their_pool(self):
        array = arrays().device_array(1000, "uint8")
        self.pool.destroy()
        self.assertIsNotNone(commpool.block_of(array))
        start = array.device_ctypes_pointer.value
        with self.assertRaisesRegex(commpool.NotFound, "was destroyed"):
            arrays().device_array(1000, "uint8")
        del array
        self.flush()
        self.assertIsNone(commpool.block_of(start))

    def test_say_how_much_memory_the_device_has(self):
        free, total = arrays().current_context().get_memory_info()
        self.assertTrue(0 < free <= total)

    def test_are_not_shared_by_ipc(self):
        array = arrays().device_array(1000, "uint8")
        with self.assertRaisesRegex(commpool.NotSupported, "cudaMalloc memory"):
            array.get_ipc_handle()


@libraries.needed
class NumbasVariable(unittest.TestCase):
    def run_program(self, text, **variables):
        start = (f"import site; site.addsitedir({str(libraries.site_packages())!r})\n"
                 "import commpool; commpool.initialize('emulated')\n")
        return subprocess.run([sys.executable, "-B", "-c", start + text], capture_output=True, text=True, check=False,
                              env={**emulated.os.environ, "PYTHONPATH": emulated.PACKAGE, **variables})

    def test_puts_arrays_of_a_program_that_names_no_pool_into_scopes(self):
        result = self.run_program("""
import numba.cuda
pool = commpool.Pool("scoped")
outside = numba.cuda.device_array(1000, "uint8")
with commpool.use_pool(pool):
    inside = numba.cuda.device_array(1000, "uint8")
print(commpool.block_of(inside).pool == pool.handle,
      commpool.block_of(outside).pool == commpool.Pool.default(0).handle)
""", NUMBA_CUDA_MEMORY_MANAGER="commpool.numba")
        self.assertEqual((result.stdout, result.stderr), ("True True\n", ""))

    def test_is_not_needed_where_a_program_names_its_pool_too_late(self):
        result = self.run_program("""
import numba.cuda
array = numba.cuda.device_array(1000, "uint8")
import commpool.numba
commpool.numba.use(commpool.Pool("late"))
""")
        self.assertIn("FailedPrecondition: Numba uses CUDA already, with another memory manager", result.stderr)
