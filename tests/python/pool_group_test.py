"""The pools of several ranks in one thread: the group makes their collective calls."""

import ctypes
import unittest

import emulated
import commpool
from emulated import MIB
from remembering import Remembering

_DEVICES = [0, 1]


def communicators():
    """Makes communicators as ncclCommInitAll does. The test ends them."""
    commpool.initialize("emulated")
    handles = (ctypes.c_void_p * len(_DEVICES))()
    emulated.check(emulated.nccl().ncclCommInitAll(handles, len(_DEVICES), (ctypes.c_int * len(_DEVICES))(*_DEVICES)))
    return list(handles)


def first_byte(address):
    """Of memory of the current device, or of what it has mapped."""
    byte = ctypes.c_uint8()
    emulated.check(emulated.cuda().cuMemcpyDtoH_v2(ctypes.byref(byte), ctypes.c_uint64(address), ctypes.c_size_t(1)))
    return byte.value


class Groups(unittest.TestCase):
    def setUp(self):
        self.home = self.communicators()

    def communicators(self):
        made = communicators()
        self.addCleanup(lambda: [emulated.check(emulated.nccl().ncclCommDestroy(ctypes.c_void_p(handle)))
                                 for handle in made])
        return made

    def test_serve_equal_offsets_in_windows(self):
        with commpool.PoolGroup("both", devices=_DEVICES, symmetric_across=self.home, reserve="8MiB") as pools:
            self.assertEqual([(pool.name, pool.device, pool.mode) for pool in pools],
                             [("both", 0, "symmetric"), ("both", 1, "symmetric")])
            buffers = [pool.allocate(MIB) for pool in pools for _ in range(2)]
            places = [pools[rank].window_of(buffers[2 * rank + 1], self.home[rank]) for rank in range(len(pools))]
            self.assertEqual(places[0].offset, places[1].offset)
            self.assertTrue(places[0].offset > 0 and places[0].handle and places[1].handle)
            pools.verify()
            del buffers
            self.assertEqual(pools.reclaim(), [2 * MIB] * 2)
            self.assertEqual(pools.trim(), [pools[0].stats().reserved_bytes.total] * 2)
            handle = pools[0].handle
        self.assertRegex(repr(pools), "PoolGroup of .*device 0.*destroyed.*device 1.*destroyed")
        self.assertGreater(handle, 0)

    def test_know_where_blocks_lie_on_each_rank(self):
        with commpool.PoolGroup("both", devices=_DEVICES, symmetric_across=self.home, reserve="8MiB") as pools:
            buffers = [pool.allocate(MIB) for pool in pools]
            with self.assertRaisesRegex(commpool.FailedPrecondition, r"map_peers\(\)"):
                pools[0].peers_of(buffers[0])
            pools.map_peers()
            for rank, buffer in enumerate(buffers):
                stream = emulated.Stream(rank)
                stream.fill(buffer, rank + 1)
                stream.synchronize()
            for rank, buffer in enumerate(buffers):
                emulated.make_current(rank)
                peers = pools[rank].peers_of(buffer)
                self.assertEqual([first_byte(address) for address in peers.addresses], [1, 2])
            freed = buffers[0].pointer
            del buffer, buffers
            with self.assertRaises(commpool.NotFound):
                pools[0].peers_of(freed)
            pools.reclaim()

    def test_register_move_and_sleep_together(self):
        other = self.communicators()
        with commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home, reserve=MIB) as pools:
            pools.register_with(other)
            self.assertEqual([pool.stats().registered_segments for pool in pools], [2, 2])
            pools.sleep(graphs="discarded")
            self.assertEqual([pool.stats().asleep_bytes for pool in pools], [2 * MIB] * 2)
            pools.wake()
            libraries = [Remembering(), Remembering()]
            pools.add_registrar(libraries)
            self.assertEqual([list(library.registered.values()) for library in libraries], [[2 * MIB]] * 2)
            pools.remove_registrar("library")
            self.assertEqual([library.registered for library in libraries], [{}, {}])
            with self.assertRaisesRegex(commpool.InvalidArgument, "1 registrars for 2 pools"):
                pools.add_registrar([None])
            pools.deregister(other)
            pools.deregister(self.home)
            pools.rehome(other)
            pools.reserve("4MiB")
            self.assertEqual([pool.lost_rank() for pool in pools], [None, None])

    def test_refuse_what_would_wait_for_the_thread_s_other_rank(self):
        with commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home) as pools:
            with self.assertRaisesRegex(commpool.FailedPrecondition, "wait for its own other ranks"):
                pools[0].reserve(MIB)
            with self.assertRaisesRegex(commpool.InvalidArgument, "a group of 2 pools and 1 communicators"):
                pools.register_with(self.home[:1])
        with self.assertRaisesRegex(commpool.InvalidArgument, "a group of 1 devices and 2 communicators"):
            commpool.PoolGroup(devices=[0], symmetric_across=self.home)
        with self.assertRaises(commpool.InvalidArgument):
            commpool.PoolGroup(devices=[], symmetric_across=[])
        with self.assertRaisesRegex(commpool.InvalidArgument, "symmetric_across is None, which is no communicator"):
            commpool.PoolGroup(devices=[0], symmetric_across=None)

    def test_of_which_an_option_is_refused_leave_no_pool(self):
        for wrong in ({"limit": "2 apples"}, {"reserve": "2 apples"}):
            with self.assertRaisesRegex(commpool.InvalidArgument, "'2 apples' is no size"):
                commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home, **wrong)
        with commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home, reserve=MIB) as pools:
            self.assertEqual(len(pools), 2)

    def test_of_which_a_reserve_fails_leave_no_pool(self):
        with self.assertRaises(commpool.CommpoolError):
            commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home, reserve="1TiB")
        with commpool.PoolGroup(devices=_DEVICES, symmetric_across=self.home, reserve=MIB) as pools:
            self.assertEqual(len(pools), 2)


if __name__ == "__main__":
    unittest.main()
