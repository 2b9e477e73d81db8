"""RMM's buffers in pools: the real RMM in Python on the emulated driver, as far as it works without CUDA's runtime."""

import sys
import unittest
from unittest import mock

import below
import emulated
import libraries

import commpool
from commpool import holders


class Cases:
    path = ""

    @classmethod
    def setUpClass(cls):
        libraries.add()
        commpool.initialize("emulated")
        import commpool.rmm as adapter
        import rmm

        cls.adapter, cls.rmm = adapter, rmm

    def setUp(self):
        self.pool = commpool.Pool("shared", limit="64MiB")
        self.resource = self.adapter.resource(self.pool, path=self.path)

    def tearDown(self):
        self.assertEqual(emulated.reports(), (0, ""))

    def blocks(self):
        return self.pool.stats().allocated_blocks.current

    def test_lie_in_the_pool_and_count_in_rmms_own_statistics(self):
        counted = self.rmm.mr.StatisticsResourceAdaptor(self.resource)
        buffer = self.rmm.DeviceBuffer(size=1000, mr=counted)
        self.assertEqual(commpool.block_of(int(buffer.ptr)).pool, self.pool.handle)
        self.assertEqual(counted.allocation_counts.current_bytes, self.pool.stats().requested_bytes.current)
        del buffer
        self.assertEqual((self.blocks(), counted.allocation_counts.current_bytes), (0, 0))

    def test_raise_memory_error_with_the_pools_sentence(self):
        with self.assertRaisesRegex(MemoryError, "no memory for 100 MiB in pool shared"):
            self.resource.allocate(100 << 20)
        self.assertEqual(self.blocks(), 0)

    def test_are_reused_at_once_on_their_own_stream(self):
        start = self.resource.allocate(1000)
        self.resource.deallocate(start, 1000)
        self.assertGreater(self.pool.stats().cached_bytes, 0)
        self.assertEqual(self.resource.allocate(1000), start)
        self.resource.deallocate(start, 1000)

    def test_wait_for_another_stream_that_frees_them(self):
        emulated.make_current(0)
        one, two = emulated.Stream(), emulated.Stream()
        of_rmm = [self.rmm.pylibrmm.stream.Stream(obj=stream) for stream in (one, two)]
        start = self.resource.allocate(1 << 20, of_rmm[0])
        two.fill(Range(start, 1 << 20))
        self.resource.deallocate(start, 1 << 20, of_rmm[1])
        again = self.resource.allocate(1 << 20, of_rmm[0])
        one.fill(Range(again, 1 << 20))
        one.synchronize()  # the emulator would report a race
        two.synchronize()
        self.resource.deallocate(again, 1 << 20, of_rmm[0])

    def test_wait_for_another_device_s_default_stream_that_frees_them(self):
        pool = commpool.Pool("with peers", peers=[1])
        resource = self.adapter.resource(pool, path=self.path)
        emulated.make_current(0)
        start = resource.allocate(1 << 20)
        emulated.make_current(1)
        Default().fill(Range(start, 1 << 20))
        resource.deallocate(start, 1 << 20)
        emulated.make_current(0)
        again = resource.allocate(1 << 20)
        Default().fill(Range(again, 1 << 20))
        Default().synchronize()  # the emulator would report a race
        resource.deallocate(again, 1 << 20)

    def test_follow_scopes_where_no_pool_is_named(self):
        with commpool.use_pool(self.pool):
            start = self.adapter.resource(path=self.path).allocate(1000)
        self.assertEqual(commpool.block_of(start).pool, self.pool.handle)
        self.adapter.resource(path=self.path).deallocate(start, 1000)

    def test_are_of_the_device_that_is_named(self):
        start = self.adapter.resource(device="cuda:1", path=self.path).allocate(1000)
        self.assertEqual(commpool.block_of(start).device, 1)
        commpool.free(start)
        with self.assertRaisesRegex(commpool.InvalidArgument, "there is no device 9"):
            self.adapter.resource(device="cuda:9", path=self.path)

    def test_keep_their_pool(self):
        resource = self.adapter.resource(commpool.Pool("of no other name"), path=self.path)
        resource.deallocate(resource.allocate(1000), 1000)

    def test_outlive_their_pool(self):
        start = self.resource.allocate(1000)
        self.pool.destroy()
        with self.assertRaisesRegex(Exception, "pool"):
            self.resource.allocate(1000)
        self.resource.deallocate(start, 1000)
        self.assertIsNone(commpool.block_of(start))

    def test_of_others_are_kept_and_that_is_said(self):
        other = commpool.Pool("other")
        theirs = other.allocate(4096)
        self.assertIn("another pool, which keeps it",
                      self.said(lambda: self.resource.deallocate(theirs.pointer, 4096)))
        self.assertEqual(other.stats().allocated_blocks.current, 1)
        start = self.resource.allocate(1000)
        self.resource.deallocate(start, 1000)
        self.assertIn("freed before", self.said(lambda: self.resource.deallocate(start, 1000)))
        self.assertIn("another allocator's", self.said(lambda: self.resource.deallocate(0x1000, 1000)))


@libraries.needed
class InPython(Cases, unittest.TestCase):
    path, said = "python", staticmethod(below.said_in_python)

    def test_are_what_auto_takes_where_nothing_can_be_compiled(self):
        with mock.patch.object(self.adapter._rmm_build, "placed", side_effect=self.adapter._rmm_build.CannotBuild("x")):
            with self.assertWarnsRegex(RuntimeWarning, "calls Python for each buffer: x"):
                self.assertIs(type(self.adapter.resource(self.pool)), self.rmm.mr.CallbackMemoryResource)
            with self.assertRaisesRegex(commpool.NotSupported, "x"):
                self.adapter.resource(self.pool, path="c++")


@libraries.needed
class InCxx(Cases, unittest.TestCase):
    path, said = "c++", staticmethod(below.said_in_c)

    def test_are_what_auto_takes(self):
        self.assertIs(type(self.adapter.resource(self.pool)), self.adapter.CompiledResource)

    def test_call_no_python(self):
        called = []
        for resource in (self.resource, self.adapter.resource(self.pool, path="python")):
            calls = []
            sys.setprofile(lambda frame, event, argument, calls=calls: calls.append(event) if event == "call" else None)
            resource.deallocate(resource.allocate(1000), 1000)
            sys.setprofile(None)
            called.append(len(calls))
        self.assertEqual(called[0], 0)
        self.assertGreaterEqual(called[1], 2)

    def test_survive_their_python_object_in_rmms_registry(self):
        self.rmm.mr.set_per_device_resource(0, self.rmm.mr.StatisticsResourceAdaptor(self.resource))
        self.resource = None
        buffer = self.rmm.DeviceBuffer(size=1000, mr=self.rmm.mr.get_per_device_resource(0))
        self.assertEqual(commpool.block_of(int(buffer.ptr)).pool, self.pool.handle)
        del buffer
        self.rmm.mr.set_per_device_resource(0, self.rmm.mr.CudaMemoryResource())

    def test_that_pools_of_the_driver_keep_are_given_back_from_below_rmms_adaptors(self):
        """RMM's own class for such pools refuses drivers that are not NVIDIA's. So this test uses its base class."""
        emulated.make_current(0)
        mr, pool = self.rmm.mr, below.pool_that_keeps(96 << 20)
        view = type("View", (mr.CudaMemoryResource,), {"pool_handle": lambda self: pool})
        limited = mr.LimitingResourceAdaptor(view(), 1 << 30)
        mr.set_per_device_resource(0, mr.StatisticsResourceAdaptor(limited))
        with mock.patch.object(mr, "CudaAsyncViewMemoryResource", view), holders.add_rmm() as holder:
            self.assertEqual(holder._cached_bytes(0), 96 << 20)
            holder._release(0)
            self.assertEqual(holder._cached_bytes(0), 0)
        mr.set_per_device_resource(0, mr.CudaMemoryResource())

    def test_are_refused_where_what_was_compiled_does_not_load(self):
        build = self.adapter._rmm_build
        with mock.patch.object(build, "_build", lambda: __file__):
            with self.assertRaisesRegex(build.CannotBuild, "does not load"):
                build._place.__wrapped__()

    def test_are_refused_where_rmm_declares_its_class_otherwise(self):
        build = self.adapter._rmm_build
        with mock.patch.dict(build._DECLARED, {"librmm/memory_resource.pxd": "struct another"}):
            with self.assertRaisesRegex(build.CannotBuild, "in another way than is known"):
                build._check_member(self.rmm)


class Default(emulated.Stream):
    """The legacy stream of the device that is current at a call."""

    def __init__(self):
        self.handle = 0


class Range:
    def __init__(self, pointer, nbytes):
        self.pointer, self.nbytes = pointer, nbytes
