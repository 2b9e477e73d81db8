"""torch's tensors in sleeping pools: a program may drop them at any time, and they return when the pool wakes."""

import gc

import torch

from routed import MIB, RoutedCase, commpool, filled, filled_in, on_thread, tensor


class Sleeping(RoutedCase):
    def test_tensors_are_dropped_asleep_by_whoever_drops_them(self):
        pool = self.pool(tag="sleeping")
        with commpool.use_pool(pool):
            kept = filled(3.0, dtype=torch.float32)
            dropped, cyclic, on_another = tensor(MIB), [tensor(MIB)], [tensor(512)]
        cyclic.append(cyclic)  # only the garbage collector can free it
        commpool.sleep(tag="sleeping")
        del dropped, cyclic
        gc.collect()
        on_thread(on_another.clear)
        torch.cuda.empty_cache()
        self.assertEqual(pool.stats().allocated_blocks.current, 1)
        with commpool.use_pool(pool), self.assertRaisesRegex(RuntimeError, "is asleep: wake"):
            tensor(MIB)
        commpool.wake(tag="sleeping")
        self.assertEqual(kept.fill_(5.0).sum().item(), 5 * MIB)

    def test_what_is_kept_is_where_it_was(self):
        pool = self.pool()
        weights = filled_in(pool, 3.0, 1 << 16, torch.float32)
        place = weights.data_ptr()
        pool.sleep(keep="host")
        self.assertEqual(pool.stats().kept_bytes, weights.nbytes)
        pool.wake()
        self.assertEqual((weights.data_ptr(), weights.sum().item()), (place, 3 << 16))

    def test_devices_that_became_peers_meanwhile_reach_it_once_it_is_awake(self):
        self.needs_device(1)
        owner = torch.cuda.device_count() - 1  # other tests' peers are on other devices, if there are so many
        peer = owner - 1
        pools = {"by itself": self.pool(device=owner), "by its tag": self.pool(device=owner, tag="meanwhile"),
                 "met asleep": self.pool(device=owner, tag="meanwhile")}

        def zeros_in(woken):
            with commpool.use_pool(pools[woken]):
                return torch.zeros(3, 2, device=f"cuda:{owner}")

        of_pool = {woken: zeros_in(woken) for woken in ("by itself", "by its tag")}
        for pool in pools.values():
            pool.sleep(keep="host")
        x = torch.arange(6.0).reshape(2, 3).to(f"cuda:{peer}")
        # Not a plain copy: a kernel on one device writes to the other, so torch makes that a peer, once.
        torch.empty(3, 2, device=f"cuda:{owner}").copy_(x.t())
        with commpool.use_pool(pools["met asleep"]):
            self.assertRaises(RuntimeError, torch.empty, 1, device=f"cuda:{owner}")
        pools["by itself"].wake()
        commpool.wake(tag="meanwhile")
        of_pool["met asleep"] = zeros_in("met asleep")
        for woken, ours in of_pool.items():
            with self.subTest(woken):
                ours.copy_(x.t())
                self.assertEqual(ours.tolist(), [[0, 3], [1, 4], [2, 5]])
