"""Scopes follow a backward() that is called in one, on whatever thread it runs, and catch no unrelated thread."""

import threading

import torch
from torch.utils.checkpoint import checkpoint

from routed import (MIB, MakeInBackward, RoutedCase, commpool, on_thread, on_threads, pool_of, tensor, tensor_in,
                    train_once)


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
        made = []
        with commpool.use_pool(self.pool()):
            on_thread(lambda: train_once(leaf(), made))
        self.assertEqual([pool_of(entry[2]) for entry in made], [None, None])

    def test_of_two_threads_goes_to_two_pools(self):
        pools, started, made = [self.pool("one"), self.pool("two")], threading.Barrier(2), [[], []]

        def train(which):
            with commpool.use_pool(pools[which]):
                out = MakeInBackward.apply(leaf(), made[which])
                started.wait()
                out.backward(torch.ones_like(out))
                started.wait()

        on_threads(lambda: train(0), lambda: train(1))
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
            seen.extend([pool_of(tensor_in(inner)), pool_of(tensor(MIB))])

        x.register_hook(hook)
        with commpool.use_pool(outer):
            train_once(x)
        self.assertEqual(seen, [inner.handle, outer.handle])

    def test_ends_with_the_scope_that_an_exception_leaves(self):
        x = leaf()

        def hook(gradient):
            raise ValueError("in backward")

        x.register_hook(hook)
        with self.assertRaisesRegex(ValueError, "in backward"), commpool.use_pool(self.pool()):
            train_once(x)
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
        self.assertLessEqual({MIB, -MIB}, set(memory), "allocated in aten::empty, and freed")

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
        self.assert_serves(pool)
        self.assert_native(tensor(MIB))
