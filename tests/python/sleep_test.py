"""Pools that sleep and wake, one by one and by their tags."""

import ctypes
import threading
import unittest

import emulated  # noqa: F401  the emulator is the driver
import commpool
from emulated import MIB


class Sleep(unittest.TestCase):
    def test_gives_the_memory_back_and_keeps_addresses(self):
        pool = commpool.Pool("weights")
        buffer = pool.allocate(8 * MIB)
        pool.sleep()
        statistics = pool.stats()
        self.assertEqual((statistics.asleep_bytes, statistics.kept_bytes), (statistics.reserved_bytes.current, 0))
        self.assertRegex(repr(pool), r"8 MiB in use of 8 MiB reserved, 8 MiB asleep>$")
        with self.assertRaisesRegex(commpool.FailedPrecondition, "is asleep: wake"):
            pool.allocate(MIB)
        pointer = buffer.pointer
        pool.wake()
        self.assertEqual((pool.stats().asleep_bytes, commpool.block_of(buffer).pointer), (0, pointer))
        buffer.free()

    def test_keeps_what_blocks_hold_on_the_host(self):
        pool = commpool.Pool("weights", location="host_numa")  # memory that the test itself may look at
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
        threads = [threading.Thread(target=buffer.free) for buffer in buffers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
        pool.wake()
        self.assertGreater(pool.trim(), 64 * MIB)

    def test_words_that_are_none_are_refused(self):
        pool = commpool.Pool()
        with self.assertRaisesRegex(ValueError, "keep 'disk' is none of discard, host"):
            pool.sleep(keep="disk")
        with self.assertRaisesRegex(ValueError, "graphs 'some' is none of refused, no_collectives"):
            pool.sleep(graphs="some")
        with self.assertRaisesRegex(commpool.FailedPrecondition, "it is not asleep"):
            pool.wake()

    def test_memory_that_cannot_leave_its_address_is_refused_with_the_reason(self):
        users = commpool.UserBacking(lambda nbytes, device, stream: self.fail("nothing is allocated"), lambda *_: None)
        for backing, name in (("cuda", "cuda"), ("nccl", "nccl"), (users, "user")):
            pool = commpool.Pool(backing=backing)
            with self.assertRaisesRegex(commpool.NotSupported, f"memory of the {name} backing"):
                pool.sleep()
            self.assertEqual(pool.stats().asleep_bytes, 0)

    def test_a_tag_takes_its_pools_together(self):
        weights = [commpool.Pool(f"layer {number}", tag="weights", reserve=MIB) for number in range(2)]
        cache = commpool.Pool("cache", tag="caches", reserve=MIB)
        commpool.sleep(tag="weights", keep="host")
        self.assertEqual([pool.stats().asleep_bytes > 0 for pool in [*weights, cache]], [True, True, False])
        commpool.sleep(tag="weights")
        commpool.wake(tag="weights")
        self.assertEqual([pool.stats().asleep_bytes for pool in weights], [0, 0])
        with self.assertRaisesRegex(LookupError, "no pool has the tag \"none\""):
            commpool.wake(tag="none")


if __name__ == "__main__":
    unittest.main()
