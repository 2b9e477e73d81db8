"""torch.cuda.MemPool over our pools: a real one, for everything that takes MemPools."""

import gc
import itertools

import torch

from routed import MIB, RoutedCase, commpool, filled, on_thread, pool_of, tensor


class MemPool(RoutedCase):
    def pools(self):
        """A pool of ours, and a MemPool over it."""
        pool = self.pool()
        return pool, commpool.mem_pool(pool)

    def test_serves_torch_s_scope_and_counts_its_users(self):
        pool, mem_pool = self.pools()
        self.assertIsInstance(mem_pool, torch.cuda.MemPool)
        self.assertEqual(mem_pool.use_count(), 1)
        with torch.cuda.use_mem_pool(mem_pool):
            self.assertEqual(mem_pool.use_count(), 2)
            inside = tensor(MIB)
            self.assert_native(on_thread(lambda: tensor(MIB)))
        self.assertEqual(mem_pool.use_count(), 1)
        self.assert_in(pool, inside)
        self.assert_native(tensor(MIB))
        with self.assertRaisesRegex(RuntimeError, "entered twice"):
            with torch.cuda.use_mem_pool(mem_pool), torch.cuda.use_mem_pool(mem_pool):
                pass

    def test_is_the_pool_s_in_snapshots_and_empty_cache(self):
        pool, mem_pool = self.pools()
        with torch.cuda.use_mem_pool(mem_pool):
            kept = tensor(MIB)
            torch.cuda.empty_cache()
        segment, = mem_pool.snapshot()
        self.assertEqual((segment["segment_pool_id"], segment["total_size"]),
                         (mem_pool.id, pool.stats().reserved_bytes.current))
        self.assertEqual(segment["blocks"][0]["address"], kept.data_ptr())
        del kept, mem_pool
        gc.collect()
        self.assertEqual(pool.stats().reserved_bytes.current, 0, "its destructor empties it")

    def test_leaves_tensors_of_other_devices_to_torch(self):
        self.needs_device(1)
        pool, mem_pool = self.pools()
        with torch.cuda.device(1), torch.cuda.use_mem_pool(mem_pool):
            far, near = tensor(MIB, 1), tensor(MIB, 0)
        self.assert_native(far)
        self.assert_in(pool, near)

    def test_makes_its_own_pool_and_keeps_it(self):
        mem_pool = commpool.mem_pool(limit="8MiB")
        with torch.cuda.use_mem_pool(mem_pool):
            kept = tensor(MIB)
            self.assertRaises(torch.OutOfMemoryError, tensor, 16 * MIB)
        self.assert_in(mem_pool.commpool_pool, kept)

    def test_lies_beside_torch_s_own_and_scopes_and_the_innermost_wins(self):
        ours, scoped, theirs = self.pool("ours"), self.pool("scoped"), torch.cuda.MemPool()
        wide = self.pool("wide")
        mem_pool = commpool.mem_pool(ours)
        scopes = {ours.handle: lambda: torch.cuda.use_mem_pool(mem_pool), None: lambda: torch.cuda.use_mem_pool(theirs),
                  scoped.handle: lambda: commpool.use_pool(scoped),
                  wide.handle: lambda: commpool.use_pool(wide, filter="process")}
        for outer, inner in itertools.permutations(scopes, 2):
            with self.subTest(outer=outer, inner=inner), scopes[outer](), scopes[inner]():
                self.assertEqual(pool_of(tensor(MIB)), inner)

    def test_knows_what_is_alive_and_says_what_it_has_not(self):
        _, mem_pool = self.pools()
        with torch.cuda.use_mem_pool(mem_pool):
            kept = tensor(MIB)
        alive = torch._C._cuda_checkPoolLiveAllocations
        self.assertTrue(alive(0, mem_pool.id, {kept.data_ptr()}))
        self.assertFalse(alive(0, mem_pool.id, set()))
        with self.assertRaisesRegex(RuntimeError, "has no checkpoints"):
            torch._C._cuda_getCheckpointState(0, mem_pool.id)

    def test_of_torch_s_own_is_put_back_to_a_checkpoint(self):
        theirs = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(theirs):
            address = tensor(MIB).data_ptr()
            kept = tensor(MIB)
            self.assertEqual(kept.data_ptr(), address, "what is freed is served again")
            state = torch._C._cuda_getCheckpointState(0, theirs.id)
            del kept
            torch._C._cuda_setCheckpointPoolState(0, state, [], [])
            self.assertNotEqual(tensor(MIB).data_ptr(), address, "it is alive again")
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)
            self.assertEqual(tensor(MIB).data_ptr(), address)

    def test_of_torch_s_own_is_as_ever(self):
        theirs = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(theirs):
            kept = tensor(MIB)
        self.assert_native(kept)
        self.assertEqual(theirs.snapshot()[0]["blocks"][0]["address"], kept.data_ptr())
        self.assertEqual(theirs.use_count(), 1)

    def test_takes_the_place_of_a_graph_s_pool_inside_of_its_capture(self):
        """Contexts of vLLM and SGLang do this: they end the graph's pool, and begin it again after theirs."""
        (pool, mem_pool), graph, graph_s = self.pools(), torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=graph_s):
            before = filled(1)
            torch._C._cuda_endAllocateToPool(0, graph_s)
            with torch.cuda.use_mem_pool(mem_pool):
                inside = filled(2)
            torch._C._cuda_beginAllocateCurrentThreadToPool(0, graph_s)
            after = filled(3)
        made = [before, inside, after]
        self.assertEqual([pool_of(of_graph) for of_graph in made], [None, pool.handle, None])
        for of_graph in made:
            of_graph.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual([of_graph[-1].item() for of_graph in made], [1, 2, 3])

    def test_stays_with_its_pool_as_long_as_graphs_use_it(self):
        first, second, mem_pool = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), commpool.mem_pool()
        with torch.cuda.graph(first, pool=mem_pool.id):
            one = filled(1)
        handle = mem_pool.commpool_pool.handle
        del mem_pool
        gc.collect()
        with torch.cuda.graph(second, pool=first.pool()):
            two = one + one
        self.assertEqual((pool_of(one), pool_of(two)), (handle, handle))
        for graph in (first, second):
            graph.replay()
        self.assertEqual(two[-1].item(), 2)
        self.assertFalse(commpool.uninstall())
        del one, two, first, second, graph
        gc.collect()
        self.assertTrue(commpool.uninstall())
        commpool.install()

    def test_serves_compiled_functions(self):
        pool, mem_pool = self.pools()
        compiled = torch.compile(lambda: torch.ones(1024, device="cuda") * 2.0, backend="eager")
        with torch.cuda.use_mem_pool(mem_pool):
            out = compiled()
        self.assert_in(pool, out)
        self.assertEqual(out[7].item(), 2.0)

    def test_has_no_windows(self):
        symmetric = self.pool()
        symmetric.mode = "symmetric"
        for options in ({"symmetric_across": 1}, {"pool": symmetric}):
            with self.assertRaisesRegex(commpool.NotSupported, "windows are made by all ranks together"):
                commpool.mem_pool(**options)

    def test_outlives_an_uninstall(self):
        mem_pool = commpool.mem_pool()
        self.assertFalse(commpool.uninstall())
        self.assertEqual(mem_pool.use_count(), 1)
        del mem_pool
        gc.collect()
        self.assertTrue(commpool.uninstall())
        commpool.install()

    def test_by_plain_functions_is_what_torch_does_without_a_router(self):
        pool = self.pool()
        functions = pool.functions()
        mem_pool = torch.cuda.MemPool(torch._C._cuda_customAllocator(functions.allocate, functions.free))
        with torch.cuda.use_mem_pool(mem_pool):
            kept = tensor(MIB)
        self.assert_in(pool, kept)
        del kept, mem_pool
        gc.collect()
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
