"""Tensors of pools go to a process that has the stock torch alone, by torch.multiprocessing."""

import unittest

from routed import lines_of


class SharedPools(unittest.TestCase):
    END = ("ends 0", "left 0")

    def lines(self, *words):
        return lines_of(self, "shared_pools_program.py", *words)

    def check_pass(self, backing):
        self.assertEqual(self.lines("passes", backing), [
            "in the pool 2",
            "read [1000.0, 2000.0] wrote 5000.0",
            "here [1000.0, 5000.0] has commpool False",
            *self.END])

    def test_of_pages_are_read_and_written(self):
        self.check_pass("vmm")

    def test_of_cuda_malloc_are_too(self):
        self.check_pass("cuda")

    def test_of_nccl_are_too(self):
        self.check_pass("nccl")

    def test_keep_their_memory_and_the_pool_awake_until_the_importer_lets_go(self):
        taken, refused, *let_go = self.lines("lives")
        self.assertEqual(taken, "taken True 2")
        self.assertIn("other processes may use blocks that were shared: free those blocks first", refused)
        self.assertEqual(let_go, ["let go 0", "serves True [7000.0] False", *self.END])

    def test_outlive_an_importer_that_is_killed(self):
        *found, left = self.lines("dies")
        self.assertEqual(found, ["here [1000.0, 2000.0]", "read [1000.0, 2000.0] False", "ends 0"])
        self.assertEqual(left, "left 2", "torch waits for the killed one")

    def test_of_one_segment_are_exported_once(self):
        read = 1000 * sum(range(1, 1001))
        self.assertEqual(self.lines("many"), [f"read {float(read)} False", "exports 1 segments 1", *self.END])

    def test_of_pools_whose_pages_move_are_refused(self):
        self.assertIn("an expandable pool moves its pages", self.lines("refuses")[0])
