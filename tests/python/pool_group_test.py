"""The pools of several ranks in one thread: the group makes their collective calls."""

import ctypes

import emulated
import commpool
from emulated import MIB
from remembering import Remembering

_DEVICES = [0, 1]


class Groups(emulated.Case):
    def setUp(self):
        self.home = self.communicators()

    def communicators(self):
        made = emulated.communicators(_DEVICES)
        self.addCleanup(lambda: [emulated.check(emulated.nccl().ncclCommDestroy(ctypes.c_void_p(handle)))
                                 for handle in made])
        return made

    def group(self, *name, **options):
        return commpool.PoolGroup(*name, devices=_DEVICES, symmetric_across=self.home, **options)

    def test_serve_equal_offsets_in_windows(self):
        with self.group("both", reserve="8MiB") as pools:
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
        with self.group(reserve="8MiB") as pools:
            buffers = [pool.allocate(MIB) for pool in pools]
            self.assertRaisesRegex(commpool.FailedPrecondition, r"map_peers\(\)", pools[0].peers_of, buffers[0])
            pools.map_peers()
            for rank, buffer in enumerate(buffers):
                stream = emulated.Stream(rank)
                stream.fill(buffer, rank + 1)
                stream.synchronize()
            for rank, buffer in enumerate(buffers):
                emulated.make_current(rank)
                peers = pools[rank].peers_of(buffer)
                self.assertEqual([emulated.byte_at(address) for address in peers.addresses], [1, 2])
            freed = buffers[0].pointer
            del buffer, buffers
            self.assertRaises(commpool.NotFound, pools[0].peers_of, freed)
            pools.reclaim()

    def test_register_move_and_sleep_together(self):
        other = self.communicators()
        with self.group(reserve=MIB) as pools:
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
            self.assertInvalid("1 registrars for 2 pools", pools.add_registrar, [None])
            pools.deregister(other)
            pools.deregister(self.home)
            pools.rehome(other)
            pools.reserve("4MiB")
            self.assertEqual([pool.lost_rank() for pool in pools], [None, None])

    def test_refuse_what_would_wait_for_the_thread_s_other_rank(self):
        with self.group() as pools:
            self.assertRaisesRegex(commpool.FailedPrecondition, "wait for its own other ranks", pools[0].reserve, MIB)
            self.assertInvalid("a group of 2 pools and 1 communicators", pools.register_with, self.home[:1])
            for call in (pools.register_with, pools.deregister, pools.rehome):
                self.assertInvalid("a group of 2 pools and 2 communicators: each has its own", call, self.home[:1] * 2)
        for devices, across, reason in (([0], self.home, "a group of 1 devices and 2 communicators"), ([], [], ""),
                                        (_DEVICES, self.home[:1], "a group of 2 devices and 1 communicators"),
                                        (_DEVICES, self.home[:1] * 2, "2 communicators: each has its own"),
                                        ([0], None, "symmetric_across is None, which is no communicator")):
            self.assertInvalid(reason, commpool.PoolGroup, devices=devices, symmetric_across=across)

    def test_of_which_an_option_is_refused_leave_no_pool(self):
        for wrong in ({"limit": "2 apples"}, {"reserve": "2 apples"}):
            self.assertInvalid("'2 apples' is no size", self.group, **wrong)
        with self.group(reserve=MIB) as pools:
            self.assertEqual(len(pools), 2)

    def test_of_which_a_reserve_fails_leave_no_pool(self):
        self.assertRaises(commpool.CommpoolError, self.group, reserve="1TiB")
        with self.group(reserve=MIB) as pools:
            self.assertEqual(len(pools), 2)
