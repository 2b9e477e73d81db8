"""Whether NIXL and UCX reach a pool's memory without copies through the host; here without fabric handles."""

import os
from unittest import mock

import emulated

os.environ["COMMPOOL_EMULATOR"] = "fabric=no"

import commpool  # noqa: E402
import commpool.registrars  # noqa: E402


class Eligible(emulated.Case):
    def setUp(self):
        self.cards(False)

    def cards(self, there):
        self.enterContext(mock.patch("commpool.registrars._has_rdma_cards", return_value=there))

    def pool(self, **options):
        pool = self.make_pool("transfers", **options)
        self.addCleanup(pool.close)
        pool.allocate(3 * emulated.MIB, emulated.Stream()).free()
        return pool

    def test_is_what_is_made_by_cuda_malloc(self):
        for library in ("nixl", "ucx"):
            found = self.pool(backing="cuda").eligible(library)
            self.assertEqual((bool(found), found.reason), (True, ""))

    def test_is_memory_of_the_host(self):
        self.assertTrue(self.pool(location="host_numa").eligible("nixl"))
        self.assertTrue(self.pool(backing="pinned").eligible("nixl"))

    def test_is_not_what_has_descriptors_alone(self):
        found = self.pool().eligible("nixl")
        self.assertFalse(found)
        self.assertIn("file descriptors only", found.reason)
        self.assertIn("no RDMA card is here", found.reason)

    def test_is_that_too_where_an_rdma_card_reaches_it(self):
        self.cards(True)
        self.assertTrue(self.pool().eligible("ucx"))

    def test_are_no_expandable_pools(self):
        self.assertRegex(self.pool(mode="expandable").eligible("ucx").reason, "expandable: its pages move")

    def test_asks_about_libraries_that_it_knows(self):
        self.assertInvalid("'mooncake' is none of nixl, ucx", self.pool().eligible, "mooncake")

    def test_decides_what_registrars_take(self):
        pool, agent = self.pool(), mock.Mock()
        with self.assertRaisesRegex(commpool.NotSupported, "file descriptors only") as caught:
            pool.add_registrar(commpool.registrars.Nixl(agent))
        self.assertIn(pool.eligible("nixl").reason, str(caught.exception))
        agent.register_memory.assert_not_called()
        pool.add_registrar(commpool.registrars.Nixl(agent, paths="any"))
        agent.register_memory.assert_called_once()
        self.assertInvalid("'slow' is none of direct, any", commpool.registrars.Nixl, agent, paths="slow")
