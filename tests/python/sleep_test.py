"""Pools that sleep and wake, one by one and by their tags."""

import ctypes
import os
import pathlib
import tempfile

import emulated
import commpool
from emulated import MIB


class Sleep(emulated.Case):
    def test_gives_the_memory_back_and_keeps_addresses(self):
        pool = commpool.Pool("weights")
        buffer = pool.allocate(8 * MIB)
        pool.sleep()
        statistics = pool.stats()
        self.assertEqual((statistics.asleep_bytes, statistics.kept_bytes), (statistics.reserved_bytes.current, 0))
        self.assertRegex(repr(pool), r"8 MiB in use of 8 MiB reserved, 8 MiB asleep>$")
        self.assertRaisesRegex(commpool.FailedPrecondition, "is asleep: wake", pool.allocate, MIB)
        pointer = buffer.pointer
        pool.wake()
        self.assertEqual((pool.stats().asleep_bytes, commpool.block_of(buffer).pointer), (0, pointer))
        buffer.free()

    def test_keeps_what_blocks_hold_on_the_host(self):
        pool = commpool.Pool("weights", location="host_numa")  # the test itself may read this memory
        buffer = pool.allocate(MIB)
        ctypes.memset(buffer.pointer, 7, MIB)
        pool.sleep(keep="host")
        self.assertEqual(pool.stats().kept_bytes, MIB)
        pool.wake()
        self.assertEqual(ctypes.string_at(buffer.pointer, MIB), b"\7" * MIB)
        self.assertEqual(pool.stats().kept_bytes, 0)
        buffer.free()

    def test_blocks_are_freed_asleep_from_any_thread(self):
        pool = commpool.Pool("caches")
        buffers = [pool.allocate(size) for size in (1000, MIB, 64 * MIB)]
        pool.sleep(keep="host", graphs="no_collectives")
        emulated.at_once(lambda: buffers.pop().free(), len(buffers))
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
        pool.wake()
        self.assertGreater(pool.trim(), 64 * MIB)

    def test_words_that_are_none_are_refused(self):
        pool = commpool.Pool()
        self.assertInvalid("keep 'disk' is none of discard, host", pool.sleep, keep="disk")
        self.assertInvalid("graphs 'some' is none of refused, no_collectives, discarded", pool.sleep, graphs="some")
        self.assertInvalid("graphs 'none' is none of refused", pool.wake, graphs="none")
        self.assertInvalid("graphs 'none' is none of refused", commpool.wake, tag="weights", graphs="none")
        self.assertRaisesRegex(commpool.FailedPrecondition, "it is not asleep", pool.wake)

    def test_memory_that_cannot_leave_its_address_is_refused_with_the_reason(self):
        users = commpool.UserBacking(lambda nbytes, device, stream: self.fail("nothing is allocated"), lambda *_: None)
        for backing, name in (("cuda", "cuda"), ("nccl", "nccl"), (users, "user")):
            pool = commpool.Pool(backing=backing)
            self.assertRaisesRegex(commpool.NotSupported, f"memory of the {name} backing", pool.sleep)
            self.assertEqual(pool.stats().asleep_bytes, 0)

    def test_a_tag_takes_its_pools_together(self):
        weights = [commpool.Pool(f"layer {number}", tag="weights", reserve=MIB) for number in range(2)]
        cache = commpool.Pool("cache", tag="caches", reserve=MIB)
        commpool.sleep(tag="weights", keep="host")
        self.assertEqual([pool.stats().asleep_bytes > 0 for pool in [*weights, cache]], [True, True, False])
        commpool.sleep(tag="weights")
        commpool.wake(tag="weights")
        self.assertEqual([pool.stats().asleep_bytes for pool in weights], [0, 0])
        told = 'no pool has the tag "none": there is caches, weights'
        self.assertRaisesRegex(LookupError, told, commpool.wake, tag="none")


def bytes_of(kept):
    """The bytes of a Kept, read by its address."""
    return ctypes.string_at(kept.pointer, kept.nbytes)


class Kept(emulated.Case):
    """Memory of the host, because the test itself writes to it."""

    def setUp(self):
        self.pool = self.make_pool("weights", location="host_numa", tag="kept")

    def array(self, value, length=1 << 16):
        array = commpool.empty((2, length // 2), "uint8", pool=self.pool)
        ctypes.memset(array.pointer, value, array.nbytes)
        return array

    def test_is_read_while_the_pool_sleeps(self):
        array, buffer = self.array(7), self.pool.allocate(MIB)
        ctypes.memset(buffer.pointer, 5, MIB)
        for keep in ("host", "pageable"):
            self.pool.sleep(keep=keep)
            kept = self.pool.kept(array)
            self.assertEqual((kept.shape, kept.dtype, bytes_of(kept)), ((2, 1 << 15), "uint8", b"\7" * (1 << 16)))
            self.assertEqual(bytes_of(self.pool.kept(buffer)), b"\5" * MIB)
            self.pool.wake()
            with self.assertRaisesRegex(commpool.FailedPrecondition, "it is awake, and its copies are gone"):
                kept.pointer  # noqa: B018
            self.assertRaisesRegex(commpool.FailedPrecondition, "it is awake", self.pool.kept, array)
        self.pool.close()
        self.assertRaisesRegex(commpool.FailedPrecondition, "it is closed, and keeps nothing", self.pool.kept, array)

    def test_is_read_from_files_that_go_as_the_pool_wakes(self):
        array = self.array(7)
        with tempfile.TemporaryDirectory() as directory:
            self.pool.sleep(keep="files", directory=pathlib.Path(directory))
            self.assertEqual(len(os.listdir(directory)), 1)
            self.assertEqual(bytes_of(self.pool.kept(array)), b"\7" * (1 << 16))
            self.pool.wake()
            self.assertEqual(os.listdir(directory), [])
        self.assertEqual(ctypes.string_at(array.pointer, array.nbytes), b"\7" * (1 << 16))

    def test_is_an_array_for_numpy_and_a_capsule_for_the_cpu(self):
        array = self.array(7)
        self.pool.sleep(keep="host")
        kept = self.pool.kept(array)
        self.assertEqual(kept.__array_interface__, {"shape": (2, 1 << 15), "typestr": "|u1", "strides": None,
                                                    "data": (kept.pointer, True), "version": 3})
        self.assertEqual(kept.__dlpack_device__(), (1, 0))
        self.assertIn("dltensor", repr(kept.__dlpack__()))
        self.assertIn("dltensor_versioned", repr(kept.__dlpack__(max_version=(1, 0), dl_device=(1, 0))))
        for wrong in ({"dl_device": (2, 0)}, {"copy": True}):
            self.assertRaises(BufferError, kept.__dlpack__, **wrong)
        self.pool.wake()

    def test_of_named_tensors_alone_discards_the_others(self):
        named, other = self.array(1), self.array(2)
        commpool.sleep(tag="kept", keep="host", only=[named])
        self.assertEqual(bytes_of(self.pool.kept(named)), b"\1" * (1 << 16))
        self.assertRaisesRegex(commpool.NotFound, "they were discarded", self.pool.kept, other)
        commpool.wake(tag="kept")

    def test_retained_stays_at_its_address_and_is_renewed(self):
        array, constant = self.array(1), self.array(2)
        places = set()
        for value in (1, 3):
            ctypes.memset(array.pointer, value, array.nbytes)
            self.pool.sleep(keep="host", retain=True, constant=[constant])
            places.add(self.pool.kept(array).pointer)
            self.pool.wake()
            self.assertEqual(bytes_of(self.pool.kept(array)), bytes([value]) * (1 << 16))
            self.assertEqual(bytes_of(self.pool.kept(constant)), b"\2" * (1 << 16))
        self.assertEqual(len(places), 1)
        del array
        self.pool.sleep(keep="host")
        self.pool.wake(retain=True)
        self.assertEqual(bytes_of(self.pool.kept(constant)), b"\2" * (1 << 16))

    def test_options_that_exclude_each_other_are_refused_and_the_pool_stays_awake(self):
        array = self.array(1)
        for wrong, words in ((dict(keep="files"), "belong together"),
                             (dict(keep="host", directory="/tmp"), "belong together"),
                             (dict(keep="files", directory="/dev/shm"), "lies in the host's memory"),
                             (dict(keep="files", directory="/nowhere"), "/nowhere"),
                             (dict(keep="discard", only=[array]), "only= names what is kept"),
                             (dict(keep="host", only=[1 << 40]), "blocks 0"),
                             (dict(keep="host", only=["tensor"]), "is no pointer"),
                             (dict(keep="host", only=5), r"only 5 is no list: write only=\[tensor\]"),
                             (dict(keep="host", constant=[array]), "set retain")):
            with self.subTest(wrong), self.assertRaisesRegex(commpool.InvalidArgument, words):
                self.pool.sleep(**wrong)
            self.assertEqual(self.pool.stats().asleep_bytes, 0)
        self.assertInvalid("kept takes a tensor, an Array or a Buffer", self.pool.kept, array.pointer)
