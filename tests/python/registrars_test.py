"""Registrars in Python: when they are told, what their exceptions become, and NIXL's and UCX's calls."""

import ctypes
import os
from unittest import mock

import emulated
import commpool
import commpool.registrars
from emulated import MIB
from remembering import Remembering


class Registrars(emulated.Case):
    def setUp(self):
        self.pool = self.make_pool("transfers")
        self.addCleanup(self.pool.close)
        self.library = Remembering()

    def allocate(self):
        return self.pool.allocate(3 * MIB, emulated.Stream())

    def reserved(self):
        return self.pool.stats().reserved_bytes.current

    def test_have_the_pools_segments(self):
        self.allocate().free()
        self.pool.add_registrar(self.library)
        self.assertEqual(sum(self.library.registered.values()), self.reserved())
        self.assertEqual((self.library.traits.device, self.library.traits.backing, self.library.traits.location),
                         (0, "vmm", "device"))
        self.assertIs(self.library.traits.one_handle, True)
        self.pool.remove_registrar("library")
        self.assertEqual((self.library.registered, self.library.ended), ({}, 1))

    def test_hear_of_growth_when_the_program_says_so(self):
        self.pool.add_registrar(self.library)
        block = self.allocate()
        self.assertEqual(self.library.registered, {})
        self.assertEqual(self.pool.register_pending(), 1)
        self.assertEqual(sum(self.library.registered.values()), self.reserved())
        block.free()

    def test_sleep_and_wake_with_the_pool(self):
        block = self.allocate()
        self.pool.add_registrar(self.library)
        self.pool.sleep()
        self.assertEqual(self.library.registered, {})
        self.pool.wake()
        self.assertEqual(sum(self.library.registered.values()), self.reserved())
        block.free()

    def test_live_until_their_end_without_a_reference(self):
        self.allocate().free()
        with mock.patch.object(Remembering, "end") as end:
            self.pool.add_registrar(Remembering())
            self.pool.close()
        end.assert_called_once_with()

    def test_that_raise_fail_the_call_by_their_exception(self):
        self.allocate().free()
        for failure, kind in ((MemoryError("pinned"), commpool.OutOfMemory),
                              (NotImplementedError(), commpool.NotSupported),
                              (ValueError("no card"), commpool.FailedPrecondition)):
            self.library.failure = failure
            with self.assertRaisesRegex(kind, f"registrar library: registering .* failed: {type(failure).__name__}"
                                        ) as caught:
                self.pool.add_registrar(self.library)
            self.assertIs(caught.exception.__cause__, failure)
        self.assertEqual((self.library.registered, self.library.ended), ({}, 0))

    def test_refuse_what_is_none_in_words(self):
        self.assertInvalid("is no commpool.registrars.Registrar", self.pool.add_registrar, "nixl")
        self.assertInvalid("no other ranks", self.pool.add_registrar, None)
        self.assertRaisesRegex(commpool.NotFound, "no registrar named nixl", self.pool.remove_registrar, "nixl")
        self.pool.add_registrar(self.library)
        self.assertRaisesRegex(commpool.FailedPrecondition, "already", self.pool.add_registrar, Remembering())


class Agent:
    """As NIXL's agent, for what is called here."""

    def __init__(self):
        self.calls, self.regions = [], {}

    def register_memory(self, regions, kind, backends):
        self.calls.append((kind, backends))
        self.regions[regions[0][0]] = regions[0]
        return regions

    def deregister_memory(self, regions, backends):
        del self.regions[regions[0][0]]


class OfNixl(emulated.Case):
    def register(self, **of_pool):
        pool, agent = self.make_pool("transfers", **of_pool), Agent()
        pool.allocate(3 * MIB, emulated.Stream()).free()
        pool.add_registrar(commpool.registrars.Nixl(agent, ["UCX"]))
        regions = list(agent.regions.values())
        reserved = pool.stats().reserved_bytes.current
        pool.close()
        self.assertEqual(agent.regions, {})
        self.assertEqual(sum(region[1] for region in regions), reserved)
        return agent.calls, {(region[2], region[3]) for region in regions}

    def test_has_device_memory_as_vram(self):
        self.assertEqual(self.register(backing="cuda"), ([("VRAM", ["UCX"])], {(0, "")}))

    def test_has_host_memory_as_dram(self):
        self.assertEqual(self.register(location="host_numa"), ([("DRAM", ["UCX"])], {(0, "")}))

    def test_that_several_pools_have_knows_whose_segment_it_is(self):
        agent = Agent()
        nixl = commpool.registrars.Nixl(agent, paths="any")
        pools = [self.make_pool("here", device=0), self.make_pool("there", device=1)]
        for pool in pools:
            self.addCleanup(pool.close)
            pool.add_registrar(nixl)
        pools[0].allocate(3 * MIB, emulated.Stream()).free()
        pools[0].register_pending()
        self.assertEqual([region[2] for region in agent.regions.values()], [0])


class OfUcx(emulated.Case):
    def test_that_is_not_there_is_named(self):
        self.assertRaisesRegex(commpool.NotFound, "UCX: libnowhere.so", commpool.registrars.Ucx, 0, "libnowhere.so")

    def test_that_has_no_such_functions_is_named(self):
        self.assertRaisesRegex(commpool.NotFound, "UCX: .*ucp_mem_map", commpool.registrars.Ucx, 0, "libc.so.6")

    def test_keeps_the_handle_of_each_segment(self):
        pool, registrar, last = self.with_pool(3 * MIB)
        pool.add_registrar(registrar)
        self.assertEqual([last(what) for what in range(4)], [1, 19, pool.stats().reserved_bytes.current, 1])
        self.assertEqual(list(registrar.handles.values()), [4096 + 1])
        pool.sleep()
        self.assertEqual((registrar.handles, last(0)), ({}, 0))
        pool.wake()
        self.assertEqual(last(0), 1)

    def test_fails_by_its_own_words(self):
        pool, registrar, _ = self.with_pool(MIB)
        with self.assertRaisesRegex(commpool.FailedPrecondition, "ucp_mem_map: no such device"):
            pool.add_registrar(registrar)
        self.assertEqual(registrar.handles, {})

    def with_pool(self, size):
        pool = self.make_pool("transfers", segment=2 * MIB)
        self.addCleanup(pool.close)
        pool.allocate(size, emulated.Stream()).free()
        library = os.path.join(emulated.REPOSITORY, "tests/python/ucp_of_a_test.so")
        return pool, commpool.registrars.Ucx(4096, library, paths="any"), ctypes.CDLL(library).last_of_test
