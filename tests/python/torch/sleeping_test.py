"""torch's tensors in pools that sleep: dropped at any time, and where they were once the pool wakes."""

import gc
import unittest

import torch

from routed import MIB, RoutedCase, commpool, on_thread, tensor


class Sleeping(RoutedCase):
    def test_tensors_are_dropped_asleep_by_whoever_drops_them(self):
        pool = self.pool(tag="sleeping")
        with commpool.use_pool(pool):
            kept = torch.full((MIB,), 3.0, device="cuda")
            dropped, cyclic, on_another = tensor(MIB), [tensor(MIB)], [tensor(512)]
        cyclic.append(cyclic)  # the garbage collector's alone
        commpool.sleep(tag="sleeping")
        del dropped, cyclic
        gc.collect()
        on_thread(on_another.clear)
        torch.cuda.empty_cache()
        self.assertEqual(pool.stats().allocated_blocks.current, 1)
        with commpool.use_pool(pool), self.assertRaisesRegex(RuntimeError, "is asleep: wake"):
            tensor(MIB)
        commpool.wake(tag="sleeping")
        kept.fill_(5.0)
        self.assertEqual(kept.sum().item(), 5 * MIB)
        del kept

    def test_what_is_kept_is_where_it_was(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            weights = torch.full((1 << 16,), 3.0, device="cuda")
        place = weights.data_ptr()
        pool.sleep(keep="host")
        self.assertEqual(pool.stats().kept_bytes, weights.nbytes)
        pool.wake()
        self.assertEqual(weights.data_ptr(), place)
        self.assertEqual(weights.sum().item(), 3 << 16)
        del weights


if __name__ == "__main__":
    unittest.main()
