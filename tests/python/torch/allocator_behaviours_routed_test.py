"""Replacements of PyTorch's allocator do what that documents: the router, or a pool as the whole allocator.

The word after the files chooses one: router, whole.
"""

import sys
import unittest

import torch

import allocator_behaviours
from allocator_behaviours import tensor
from routed import commpool, pool_of

_WHOLE = "whole" in sys.argv


def setUpModule():
    torch.cuda.init()
    global whole
    whole = commpool.Pool("whole", mode="expandable") if _WHOLE else None
    if not commpool.install(default=whole):
        raise unittest.SkipTest("there is no router and no compiler")


def tearDownModule():
    commpool.uninstall()


class InPlace(unittest.TestCase):
    """unittest calls setUpModule of the module that defines a case, so each class must be defined here."""

    def setUp(self):
        self.assertTrue(commpool.installed())
        self.assertEqual(pool_of(tensor()), whole.handle if _WHOLE else None)
        super().setUp()


class Cache(InPlace, allocator_behaviours.Cache):
    pass


class Exhaustion(InPlace, allocator_behaviours.Exhaustion):
    pass


class GraphPools(InPlace, allocator_behaviours.GraphPools):
    pass


class Snapshots(InPlace, allocator_behaviours.Snapshots):
    pass


class Statistics(InPlace, allocator_behaviours.Statistics):
    pass


class Pools(InPlace, allocator_behaviours.Pools):
    if _WHOLE:

        def test_serve_a_request_that_nothing_else_can(self):
            """The fraction limits torch's memory and ours separately. So the whole allocator has its own share left
            here."""
            pool = torch.cuda.MemPool(use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                held = tensor(512)
            self.assertIsNone(pool_of(held))
            del held
            torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / torch.cuda.mem_get_info()[1])
            try:
                self.assertEqual(pool_of(tensor(512)), whole.handle)
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)


if __name__ == "__main__":
    unittest.main()
