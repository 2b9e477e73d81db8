"""Graphs inside and outside of scopes: captures announce themselves, and their memory lives as long as the graph."""

import contextlib
import os

import torch

from on_emulator import reports
from routed import MIB, RoutedCase, commpool, filled, filled_in, on_thread, pool_of, tensor, tensor_in


def fill_graph(pool=None, sizes=(MIB,)):
    """Makes a graph that allocates and fills tensors in a scope of the pool; returns it with the tensors."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), commpool.use_pool(pool) if pool else contextlib.nullcontext():
        return graph, [filled(7, size) for size in sizes]


class Captures(RoutedCase):
    def check_replay(self, graph, made):
        for of_graph in made:
            of_graph.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual([of_graph[:5].tolist() for of_graph in made], [[7] * 5] * len(made))

    def test_outside_of_scopes_are_torch_s(self):
        graph, made = fill_graph()
        self.assert_native(made[0])
        self.check_replay(graph, made)

    def test_announce_themselves_and_are_served_from_reserved_memory(self):
        pool = self.pool(reserve="8MiB")
        graph, made = fill_graph(pool, (MIB, 2 * MIB))
        self.assertEqual([pool_of(of_graph) for of_graph in made], [pool.handle] * 2)
        self.check_replay(graph, made)
        other = filled_in(pool, 1)
        self.check_replay(graph, made)
        self.assertEqual(other[0].item(), 1, "the graph has its memory for itself")

    def test_grow_a_pool_that_nobody_reserved(self):
        for mode in ("fixed", "expandable"):
            with self.subTest(mode=mode):
                pool = self.pool(mode=mode)
                graph, made = fill_graph(pool, (MIB, 64 * MIB, 512))
                self.assertEqual([pool_of(of_graph) for of_graph in made], [pool.handle] * 3)
                self.assertNotIn(tensor_in(pool, 64 * MIB).data_ptr(), [of_graph.data_ptr() for of_graph in made])
                self.check_replay(graph, made)

    def test_of_callables_grow_it_too(self):
        pool, x = self.pool(), torch.ones(1024, device="cuda", requires_grad=True)
        with commpool.use_pool(pool):
            graphed = torch.cuda.make_graphed_callables(torch.nn.Identity(), (x,))
            self.assertEqual(graphed(x).sum().item(), 1024)
        self.assertGreater(pool.stats().allocated_blocks.total, 0)

    def test_of_compiled_functions_are_recorded_in_it(self):
        pool, lies_in, address = self.pool(), [], 0
        compiled = torch.compile(lambda: torch.ones(1024, device="cuda") * 2.0, backend="cudagraphs")
        with commpool.use_pool(pool):
            for _ in range(5):  # eager, captured, replayed
                torch.compiler.cudagraph_mark_step_begin()
                out = compiled()
                lies_in.append(pool_of(out))
                if lies_in[-1] == pool.handle and not address:
                    address = out.data_ptr()
                self.assertEqual(out[7].item(), 2.0)
            self.assertIn(pool.handle, lies_in, "what is recorded lies in the pool")
            self.assertEqual(out.data_ptr(), address, "and a replay writes there")
            others = [torch.full((1024,), 5.0, device="cuda") for _ in range(8)]
            self.assertNotIn(address, [other.data_ptr() for other in others])
            torch.compiler.cudagraph_mark_step_begin()
            self.assertEqual(compiled()[7].item(), 2.0)
            self.assertEqual({other[7].item() for other in others}, {5.0}, "nor do replays touch what is made later")

    def test_say_where_a_pool_may_not_grow(self):
        pool = self.pool(limit="8MiB")
        with self.assertRaisesRegex(torch.OutOfMemoryError, "in a capture.*limit of 8 MiB"):
            fill_graph(pool, (64 * MIB,))
        self.check_replay(*fill_graph(pool))

    def test_have_what_they_freed_for_themselves(self):
        pool, graph = self.pool(reserve="8MiB"), torch.cuda.CUDAGraph()
        with commpool.use_pool(pool), torch.cuda.graph(graph):
            address = filled(1).data_ptr()
            made = filled(7)
        self.assertEqual(made.data_ptr(), address, "reused inside of the capture")
        self.assertNotEqual(tensor_in(pool).data_ptr(), address)
        self.check_replay(graph, [made])

    def test_one_after_another_in_one_scope(self):
        pool = self.pool(reserve="32MiB")
        graphs = [fill_graph(pool) for _ in range(3)]
        self.assertEqual(len({made[0].data_ptr() for _, made in graphs}), 3)
        for graph, made in graphs:
            self.check_replay(graph, made)

    def test_that_fail_leave_the_pool_usable(self):
        pool = self.pool(reserve="8MiB")
        with self.assertRaisesRegex(ValueError, "inside"), commpool.use_pool(pool):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                tensor(MIB)
                raise ValueError("inside of the capture")
        self.assert_serves(pool)
        self.check_replay(*fill_graph(pool))

    def test_stay_whole_where_another_thread_runs_out_of_memory_beside_an_idle_pool(self):
        pool, stream, graph = self.pool(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        too_much = 2 * torch.cuda.mem_get_info()[1]

        def run_out():
            tensor_in(pool)
            self.assertRaises(torch.OutOfMemoryError, tensor, too_much)

        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            on_thread(run_out)
        self.assertNotEqual(pool.trim(), 0, "it was idle")

    def test_leave_other_threads_native_tensors_alone(self):
        pool, graph = self.pool(reserve="8MiB"), torch.cuda.CUDAGraph()
        with commpool.use_pool(pool), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            made = filled(7)
            seen = on_thread(lambda: pool_of(tensor(MIB)))
        self.assertIsNone(seen)
        self.check_replay(graph, [made])

    def test_into_a_mem_pool_of_ours(self):
        pool, graph = self.pool(reserve="8MiB"), torch.cuda.CUDAGraph()
        mem_pool = commpool.mem_pool(pool)
        with torch.cuda.graph(graph, pool=mem_pool.id):
            made = filled(7)
        self.assert_in(pool, made)
        self.check_replay(graph, [made])

    def graphs_of_sizes(self, pool, sizes):
        """By torch's `pool=`: each graph fills a temporary of a size, and an output with its sum."""
        mem_pool, graphs, outputs = commpool.mem_pool(pool), [], []
        for number, size in enumerate(sizes):
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=mem_pool.id):
                outputs.append(torch.full((size // 8,), number + 1, device="cuda").sum())
        return mem_pool, graphs, outputs

    def test_that_never_run_at_once_share_memory(self):
        sizes, reserved = [64 * MIB, 48 * MIB, 32 * MIB], {}
        for concurrent in (True, False):
            pool = self.pool(concurrent_replays=concurrent)
            mem_pool, graphs, outputs = self.graphs_of_sizes(pool, sizes)
            reserved[concurrent] = pool.stats().reserved_bytes.current
            for number in (2, 0, 1):
                graphs[number].replay()
                self.assertEqual(outputs[number].item(), (number + 1) * (sizes[number] // 8))
            torch.cuda.synchronize()
            del mem_pool, graphs, outputs
        self.assertGreaterEqual(reserved[True], sum(sizes))
        self.assertLess(reserved[False], 64 * MIB + 16 * MIB)

    def test_that_run_at_once_though_they_share_memory_are_told(self):
        if os.environ.get("COMMPOOL_DRIVER") != "emulated":
            self.skipTest("the emulator tells races")
        pool = self.pool(concurrent_replays=False)
        mem_pool, graphs, outputs = self.graphs_of_sizes(pool, [MIB, MIB])
        other = torch.cuda.Stream()
        graphs[0].replay()
        with torch.cuda.stream(other):
            graphs[1].replay()
        torch.cuda.synchronize()
        races = [line for line in reports() if "race" in line]
        self.assertTrue(races)
        self.assertIn("capture_test.py", races[0])
        graphs[0].replay()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            graphs[1].replay()
        torch.cuda.synchronize()
        self.assertEqual([output.item() for output in outputs], [MIB // 8, MIB // 4])
        del mem_pool
