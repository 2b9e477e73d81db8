"""Facts about commpool.torch on a GPU: what the emulator cannot show, and every test of tests/python/torch besides.

usage: hardware_check.py [PART_OF_A_NAME...] [--seconds N] [--all-seconds N]
  --seconds      how long one test may take (default 90): then its process is ended, and another goes on
  --all-seconds  how long all of them may take (default 420): what is left then is named, and counts as failed

The last line says how many passed, and which did not.
"""

import argparse
import os
import sys
import time
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as functional
from torch.utils.checkpoint import checkpoint

import supervised
from routed import MIB, RoutedCase, commpool, pool_of

WIDTH, LAYERS = 512, 6


def layers():
    torch.manual_seed(7)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).cuda()


def gradients(net, x, run=None):
    net.zero_grad(set_to_none=True)
    (run or net)(x).square().mean().backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


class WarmedUp(RoutedCase):
    """cuBLAS and its workspaces exist before a scope is opened."""

    def setUp(self):
        self.net = layers()
        self.x = torch.randn(64, WIDTH, device="cuda")
        self.expected = gradients(self.net, self.x)

    def assert_equal(self, one, other):
        self.assertEqual(len(one), len(other))
        for mine, theirs in zip(one, other):
            self.assertTrue(torch.equal(mine, theirs))


class Backward(WarmedUp):
    def test_is_routed_and_equal_bit_for_bit(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            of_scope = gradients(self.net, self.x)
        routed = pool.stats().allocated_blocks.total
        self.assertEqual({pool_of(gradient) for gradient in of_scope}, {pool.handle})
        self.assertEqual({pool_of(parameter.grad) for parameter in self.net.parameters()}, {pool.handle})
        gradients(self.net, self.x)
        self.assertEqual(pool.stats().allocated_blocks.total, routed, "nothing outside of the scope")
        self.assert_equal(of_scope, self.expected)

    def test_of_a_checkpoint_recomputes_in_the_pool(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            plain = gradients(self.net, self.x)
            of_plain = pool.stats().allocated_blocks.total
            again = gradients(self.net, self.x, lambda x: checkpoint(self.net, x, use_reentrant=False))
            of_checkpoint = pool.stats().allocated_blocks.total - of_plain
        self.assertGreater(of_checkpoint, of_plain)
        self.assert_equal(plain, self.expected)
        self.assert_equal(again, self.expected)

    def test_leaves_nothing_in_the_pool_when_it_closes(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            gradients(self.net, self.x)
        self.net.zero_grad(set_to_none=True)
        pool.close()
        self.assertEqual(pool.stats().allocated_blocks.current, 0)


class Streams(RoutedCase):
    def test_that_are_recorded_keep_a_block_from_reuse(self):
        pool, side = self.pool(), torch.cuda.Stream()
        with commpool.use_pool(pool):
            used = torch.full((MIB,), 1.0, device="cuda")
        result = torch.zeros(MIB, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            result.copy_(used)
        used.record_stream(side)
        del used
        with commpool.use_pool(pool):
            overwriting = torch.full((MIB,), 2.0, device="cuda")
        torch.cuda.synchronize()
        self.assertEqual(result.sum().item(), MIB)
        self.assertEqual(overwriting.sum().item(), 2 * MIB)


class Graphs(WarmedUp):
    def capture(self, scope):
        graph, net = torch.cuda.CUDAGraph(), self.net
        with torch.no_grad():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                net(self.x)  # cuBLAS's workspace of the stream
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=side):
                if scope is None:
                    out = net(self.x)
                else:
                    with scope:
                        out = net(self.x)
        return graph, out

    def check(self, graph, out):
        for value in (1.0, 2.0):
            self.x.fill_(value)
            graph.replay()
            self.assertTrue(torch.equal(out, self.net(self.x)))

    def test_outside_of_scopes_replay_as_ever(self):
        graph, out = self.capture(None)
        self.assert_native(out)
        self.check(graph, out)

    def test_in_a_scope_replay_from_the_pool(self):
        pool = self.pool(reserve="64MiB")
        graph, out = self.capture(commpool.use_pool(pool))
        self.assert_in(pool, out)
        with commpool.use_pool(pool):
            churn = [torch.randn(64, WIDTH, device="cuda") for _ in range(20)]
        self.check(graph, out)
        del churn

    def test_of_make_graphed_callables_train_in_a_scope(self):
        pool = self.pool(reserve="256MiB")
        with commpool.use_pool(pool):
            net = layers()
            graphed = torch.cuda.make_graphed_callables(net, (torch.randn_like(self.x),))
            of_graph = gradients(net, self.x, graphed)
        for mine, theirs in zip(of_graph, self.expected):
            torch.testing.assert_close(mine, theirs)


class Compiled(WarmedUp):
    def train(self):
        torch._dynamo.reset()
        compiled, losses = torch.compile(self.net, mode="reduce-overhead"), []
        for _ in range(6):
            torch.compiler.cudagraph_mark_step_begin()
            self.net.zero_grad(set_to_none=True)
            loss = compiled(self.x).square().mean()
            loss.backward()
            losses.append((loss.item(), [parameter.grad.clone() for parameter in self.net.parameters()]))
        return losses

    def check(self, losses):
        for _, of_step in losses:
            for mine, theirs in zip(of_step, self.expected):
                torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-5)

    def test_without_overhead_is_right_outside_of_scopes(self):
        self.check(self.train())

    def test_without_overhead_is_right_in_a_scope(self):
        pool = self.pool(reserve="512MiB")
        with commpool.use_pool(pool):
            self.check(self.train())
        self.assertGreater(pool.stats().allocated_blocks.total, 0)


class TrainingEverything(RoutedCase):
    """A transformer with changing lengths, in the whole allocator: same losses, and torch's figures are true."""

    def losses(self):
        torch.manual_seed(3)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        losses = []
        for step in range(12):
            x = torch.randn(4, 64 + 37 * (step % 5), 256, device="cuda")
            loss = functional.mse_loss(net(x), x)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_has_the_same_losses(self):
        torch.use_deterministic_algorithms(False)
        native = self.losses()
        pool = commpool.Pool("whole", mode="expandable")
        commpool.install(default=pool)
        try:
            whole = self.losses()
            self.assertGreater(pool.stats().allocated_blocks.total, 1000)
            self.assertIn("Allocated memory", torch.cuda.memory_summary())
        finally:
            commpool.uninstall()
            commpool.install()
        torch.testing.assert_close(torch.tensor(whole), torch.tensor(native), rtol=1e-3, atol=1e-5)


_MODULES = ("router_test", "autograd_test", "capture_test", "mem_pool_test", "snapshot_test", "whole_allocator_test",
            "bad_input_test", "seeds_test", "sleeping_test", "dlpack_test", "advice_test")


def all_tests():
    """{name: test}: ours, and those that run on the emulator as well."""
    loader, found = unittest.defaultTestLoader, {}
    suites = [loader.loadTestsFromModule(sys.modules[__name__]), *(loader.loadTestsFromName(name) for name in _MODULES)]
    while suites:
        suite = suites.pop(0)
        if isinstance(suite, unittest.TestCase):
            found[suite.id().replace("__main__.", "")] = suite
        else:
            suites[:0] = list(suite)
    return found


def supervise(options):
    """Runs them one by one; returns the names of those that did not pass, with the reason."""
    command = [sys.executable, os.path.abspath(__file__), "--serve", *options.parts]
    begin, counts, wrong = time.monotonic(), {}, []
    supervisor = supervised.Supervisor(command, None, options.seconds)
    if supervisor.names is None:
        return ["no process with torch and the router begins"]
    for name in supervisor.names:
        late = time.monotonic() - begin > options.all_seconds
        outcome, why = [supervised.NOT_RUN, "no time is left"] if late else supervisor.run(name)
        counts[outcome] = counts.get(outcome, 0) + 1
        print(f"{outcome:<7} {name}" + (f": {why}" if why else ""), flush=True)
        if outcome not in (supervised.PASS, supervised.SKIP):
            wrong.append(f"{name} ({outcome})")
    supervisor.end()
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"facts in {time.monotonic() - begin:.0f} s: {said}")
    return wrong


def serve(parts):
    print(f"torch {torch.__version__}, {torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}", file=sys.stderr)
    commpool.install()  # raises where there is no router: the tests would all be skipped
    commpool.uninstall()
    tests = all_tests()
    supervised.serve([name for name in tests if not parts or any(part in name for part in parts)], tests.get)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--all-seconds", type=int, default=420)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.parts)
        return 0
    wrong = supervise(options)
    print(f"facts that do not hold: {', '.join(wrong) or 'none'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
