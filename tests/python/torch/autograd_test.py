"""Scopes follow a backward() that is called in one, on whatever thread it runs, and catch no unrelated thread."""

import threading
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from routed import MIB, MakeInBackward, RoutedCase, commpool, on_thread, pool_of, tensor


def leaf():
    return torch.zeros(MIB // 4, device="cuda", requires_grad=True)


class Backward(RoutedCase):
    def test_is_routed_where_it_is_called_in_the_scope(self):
        pool, made, x = self.pool(), [], leaf()
        out = MakeInBackward.apply(x, made)
        with commpool.use_pool(pool):
            out.backward(torch.ones_like(out))
        (_, _, of_forward), (_, thread, of_backward) = made
        self.assertNotEqual(thread, threading.get_ident(), "torch runs it on a thread of its own")
        self.assert_native(of_forward)
        self.assert_in(pool, of_backward)
        self.assert_in(pool, x.grad)

    def test_is_not_routed_where_it_is_called_outside(self):
        pool, made, x = self.pool(), [], leaf()
        with commpool.use_pool(pool):
            out = MakeInBackward.apply(x, made)
        out.backward(torch.ones_like(out))
        self.assertEqual([pool_of(entry[2]) for entry in made], [pool.handle, None])

    def test_of_another_thread_is_its_own_affair(self):
        pool, made = self.pool(), []

        def train():
            out = MakeInBackward.apply(leaf(), made)
            out.backward(torch.ones_like(out))

        with commpool.use_pool(pool):
            on_thread(train)
        self.assertEqual([pool_of(entry[2]) for entry in made], [None, None])

    def test_of_two_threads_goes_to_two_pools(self):
        pools, started = [self.pool("one"), self.pool("two")], threading.Barrier(2)
        made = [[], []]

        def train(which):
            with commpool.use_pool(pools[which]):
                out = MakeInBackward.apply(leaf(), made[which])
                started.wait()
                out.backward(torch.ones_like(out))
                started.wait()

        threads = [threading.Thread(target=train, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for which in range(2):
            self.assertEqual([pool_of(entry[2]) for entry in made[which]], [pools[which].handle] * 2)

    def test_recomputes_checkpoints_in_the_scope(self):
        pool, made, x = self.pool(), [], leaf()
        for reentrant in (False, True):
            del made[:]
            with commpool.use_pool(pool):
                out = checkpoint(MakeInBackward.apply, x, made, use_reentrant=reentrant)
                out.backward(torch.ones_like(out))
            self.assertEqual([entry[0] for entry in made], ["forward", "forward", "backward"])
            self.assertEqual({pool_of(entry[2]) for entry in made}, {pool.handle})

    def test_opens_scopes_of_its_own_in_hooks(self):
        outer, inner, x, seen = self.pool("outer"), self.pool("inner"), leaf(), []

        def hook(gradient):
            with commpool.use_pool(inner):
                seen.append(pool_of(tensor(MIB)))
            seen.append(pool_of(tensor(MIB)))

        x.register_hook(hook)
        with commpool.use_pool(outer):
            out = MakeInBackward.apply(x, [])
            out.backward(torch.ones_like(out))
        self.assertEqual(seen, [inner.handle, outer.handle])

    def test_ends_with_the_scope_that_an_exception_leaves(self):
        pool, x = self.pool(), leaf()

        def hook(gradient):
            raise ValueError("in backward")

        out = MakeInBackward.apply(x, [])
        x.register_hook(hook)
        with self.assertRaisesRegex(ValueError, "in backward"), commpool.use_pool(pool):
            out.backward(torch.ones_like(out))
        self.assert_native(tensor(MIB))

    def test_lets_the_profiler_stop_inside(self):
        pool = self.pool()
        profiler = torch.autograd.profiler.profile(profile_memory=True)
        profiler.__enter__()
        with commpool.use_pool(pool):
            self.assert_in(pool, tensor(MIB))
            profiler.__exit__(None, None, None)
            self.assert_in(pool, tensor(MIB))
        self.assert_native(tensor(MIB))
        memory = [event.device_memory_usage for event in profiler.function_events]
        self.assertIn(MIB, memory, "allocated in aten::empty")
        self.assertIn(-MIB, memory, "and freed")

    def test_stays_right_beside_the_profiler(self):
        pool = self.pool()
        scope = commpool.use_pool(pool)
        scope.__enter__()
        profiler = torch.autograd.profiler.profile(profile_memory=True)
        profiler.__enter__()
        self.assert_in(pool, tensor(MIB))
        scope.__exit__(None, None, None)  # before the inner one, which began later
        self.assert_native(tensor(MIB))
        profiler.__exit__(None, None, None)
        with commpool.use_pool(pool):
            self.assert_in(pool, tensor(MIB))
        self.assert_native(tensor(MIB))


if __name__ == "__main__":
    unittest.main()
