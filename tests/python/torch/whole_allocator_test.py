"""commpool.torch.install(default=...): a pool as the whole allocator, with the same completeness."""

import gc

import torch

from on_emulator import blocks_of
from routed import MIB, RoutedCase, below_zero, commpool, filled, on_thread, pool_of, tensor, tensor_in, train_once


class WholeAllocator(RoutedCase):
    def setUp(self):
        self.whole = commpool.Pool("whole", mode="expandable")
        commpool.install(default=self.whole)
        self.addCleanup(commpool.install)
        self.addCleanup(commpool.uninstall)

    def test_serves_every_thread_and_backward(self):
        made, x = [], torch.zeros(MIB, device="cuda", requires_grad=True)
        train_once(x, made)
        self.assertEqual({pool_of(entry[2]) for entry in made}, {self.whole.handle})
        self.assert_in(self.whole, x.grad)
        self.assert_in(self.whole, on_thread(lambda: tensor(MIB)))
        if torch.cuda.device_count() > 1:
            self.assert_native(tensor(MIB, device=1))

    def test_leaves_scopes_their_pools(self):
        pool = self.pool()
        self.assert_serves(pool)
        self.assert_in(self.whole, tensor(MIB))

    def test_is_what_torch_s_functions_tell_of(self):
        gc.collect()  # Cycles of earlier tests would count in the peak, and be gone a line later.
        before = torch.cuda.memory_allocated()
        kept = tensor(3 * MIB)
        self.assertEqual(torch.cuda.memory_allocated() - before, 3 * MIB)
        self.assertIn(kept.data_ptr(), blocks_of(torch.cuda.memory_snapshot()))
        tensor_in(self.pool("other"))  # it is freed, so a thread's cache keeps it, and no peak counts it from now on
        torch.cuda.reset_peak_memory_stats()
        tensor(64 * MIB)
        self.assertEqual(torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated(), 64 * MIB, "peaks are exact")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLessEqual(self.whole.stats().reserved_bytes.current, 64 * MIB)

    def test_counts_what_others_take_from_it_by_its_size(self):
        def blocks():
            statistics = torch.cuda.memory_stats()
            return [statistics[f"allocation.{kind}_pool.current"] for kind in ("small", "large")]

        small, large = blocks()
        of_others = [self.whole.allocate(size) for size in ("1KiB", "2MiB", "3MiB")]
        self.assertEqual(blocks(), [small + 1, large + 2])
        del of_others
        self.assertEqual(blocks(), [small, large])

    def test_runs_out_as_torch_does(self):
        torch.cuda.set_per_process_memory_fraction(0.01)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        self.assertRaises(torch.OutOfMemoryError, tensor, torch.cuda.get_device_properties(0).total_memory // 50)
        self.assert_in(self.whole, tensor(MIB))

    def test_leaves_graphs_and_mem_pools_to_torch(self):
        theirs, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
        with torch.cuda.use_mem_pool(theirs):
            self.assert_native(tensor(MIB))
        with torch.cuda.graph(graph):
            made = filled(7)
        made.zero_()
        graph.replay()
        self.assertEqual(made[0].item(), 7)

    def test_is_given_back_by_uninstall(self):
        kept = tensor(MIB)
        self.assertFalse(commpool.uninstall())
        self.assert_native(tensor(MIB))
        del kept
        self.assertTrue(commpool.uninstall())

    def test_that_nobody_else_holds_stays_while_its_tensors_live(self):
        commpool.install(default=commpool.Pool())
        kept = tensor(MIB)
        self.assertFalse(commpool.uninstall())
        self.assertIn(pool_of(kept), [pool.handle for pool in commpool.pools()])
        del kept
        self.assertTrue(commpool.uninstall())

    def test_counts_from_zero_after_a_reset_whenever_it_came(self):
        later = self.pool("later")
        kept = [tensor_in(later, 100), tensor_in(later, 2 * MIB)]
        torch.cuda.reset_accumulated_memory_stats()
        commpool.install(default=later)
        self.assertEqual(below_zero(torch.cuda.memory_stats()), {})
        kept.append(tensor(3 * MIB))
        self.assertEqual(torch.cuda.memory_stats()["allocation.large_pool.allocated"], 1)
        kept.clear()
        torch.cuda.empty_cache()  # a segment of small blocks goes that came before the reset
        self.assertEqual(below_zero(torch.cuda.memory_stats()), {})

    def test_is_no_symmetric_pool(self):
        pool = self.pool()
        pool.mode = "symmetric"  # like a pool over a group
        with self.assertRaisesRegex(commpool.InvalidArgument, "cannot be the whole allocator"):
            commpool.install(default=pool)

    def test_is_one_for_each_device(self):
        with self.assertRaisesRegex(commpool.InvalidArgument, "two pools of one device"):
            commpool.install(default=[self.pool("one"), self.pool("other")])
