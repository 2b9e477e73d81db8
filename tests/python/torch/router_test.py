"""The router puts what a scope catches into its pool, and all else into torch's. torch's own functions count both."""

import os

import torch

from on_emulator import reports
from routed import MIB, RoutedCase, below_zero, commpool, filled, filled_in, held, on_thread, pool_of, tensor, tensor_in


class Routing(RoutedCase):
    def test_begins_when_tensors_exist_and_keeps_the_backend_s_name(self):
        self.assertTrue(commpool.installed())
        self.assertEqual(torch.cuda.get_allocator_backend(), "native")
        self.assertTrue(commpool.install(), "a second time it does nothing")

    def test_follows_scopes_and_each_tensor_goes_back_where_it_came_from(self):
        pool, kept = self.pool(), []
        for _ in range(3):
            outside = tensor(MIB)
            with commpool.use_pool(pool) as entered:
                self.assertIs(entered, pool)
                inside = tensor(MIB)
            self.assert_native(outside)
            self.assert_in(pool, inside)
            kept += [outside, inside]
        native = torch.cuda.memory_allocated() - pool.stats().allocated_bytes.current
        del kept, outside, inside
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
        self.assertEqual(torch.cuda.memory_allocated(), native - 3 * MIB)

    def test_takes_the_innermost_scope(self):
        outer, inner = self.pool("outer"), self.pool("inner")
        with commpool.use_pool(outer), commpool.use_pool(inner):
            self.assert_in(inner, tensor(MIB))
        with commpool.use_pool(outer):
            with commpool.use_pool(inner):
                pass
            self.assert_in(outer, tensor(MIB))

    def test_takes_the_scope_that_began_last_whatever_it_catches(self):
        outer, inner, stream = self.pool("outer", limit="8MiB"), self.pool("inner", limit="2MiB"), torch.cuda.Stream()
        for words in ({"filter": "process"}, {"stream": stream}):
            with self.subTest(**words), torch.cuda.stream(stream):
                with commpool.use_pool(outer), commpool.use_pool(inner, **words):
                    self.assert_in(inner, tensor(MIB))
                    self.assert_in(inner, commpool.empty(100))
                    self.assert_in(inner, commpool.empty(100, stream=stream))
                with commpool.use_pool(inner, **words), commpool.use_pool(outer):
                    self.assert_in(outer, tensor(MIB))
                    self.assert_in(outer, commpool.empty(100))
        with commpool.use_pool(outer), commpool.use_pool(inner, stream=stream):
            self.assert_in(outer, tensor(MIB))
        for legacy in (0, 1):  # one stream by two handles
            with commpool.use_pool(outer), commpool.use_pool(inner, stream=legacy):
                self.assert_in(inner, tensor(MIB))

    def test_hands_on_between_scopes_of_threads_and_of_the_process(self):
        outer, inner = self.pool("outer", limit="8MiB"), self.pool("inner", limit="2MiB")
        wide, narrow = {"exhaustion": "next_scope", "filter": "process"}, {"exhaustion": "next_scope"}
        for first, second in ((wide, narrow), (narrow, wide)):
            with commpool.use_pool(outer, **first), commpool.use_pool(inner, **second):
                self.assert_in(inner, tensor(MIB))
                self.assert_in(outer, tensor(6 * MIB))
                self.assert_native(tensor(16 * MIB))

    def test_takes_sizes_and_devices_that_the_scope_names(self):
        pool, other = self.pool(), self.pool("other", device=self.needs_device(1))
        with commpool.use_pool(pool, sizes=("1MiB", "4MiB")), commpool.use_pool(other):
            self.assert_in(pool, tensor(MIB))
            self.assert_native(tensor(MIB - 1))
            self.assert_native(tensor(5 * MIB))
            self.assert_in(other, tensor(512, device=1))
            self.assertEqual(tensor(0).numel(), 0)

    def test_hands_what_does_not_fit_to_the_next_scope_and_at_last_to_torch(self):
        small, large = self.pool("small", limit="2MiB"), self.pool("large", limit="8MiB")
        torch.cuda.reset_accumulated_memory_stats()
        with commpool.use_pool(large, exhaustion="next_scope"), commpool.use_pool(small, exhaustion="next_scope"):
            self.assert_in(small, tensor(MIB))
            self.assert_in(large, tensor(6 * MIB))
            self.assert_native(tensor(16 * MIB))
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 0, "all were served")

    def test_decorates_functions(self):
        pool = self.pool()

        @commpool.use_pool(pool)
        def make():
            return tensor(MIB)

        self.assert_in(pool, make())
        self.assert_in(pool, on_thread(make))
        self.assert_native(tensor(MIB))

    def test_leaves_other_threads_alone_unless_asked(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            self.assert_native(on_thread(lambda: tensor(MIB)))
        with commpool.use_pool(pool, filter="process"):
            self.assert_in(pool, on_thread(lambda: tensor(MIB)))
        stream = torch.cuda.Stream()

        def on_stream():
            with torch.cuda.stream(stream):
                return tensor(MIB)

        with commpool.use_pool(pool, stream=stream):
            self.assert_in(pool, on_thread(on_stream))
            self.assert_native(tensor(MIB))
        stream = torch.cuda.ExternalStream(2)  # each thread has its own
        with commpool.use_pool(pool, stream=2):
            self.assert_in(pool, on_stream())
            self.assert_native(on_thread(on_stream))

    def test_reaches_commpool_s_own_arrays(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            self.assert_in(pool, commpool.empty(100, torch.float32))
            self.assert_in(pool, commpool.allocate("1MiB"))
        self.assertNotEqual(pool_of(commpool.empty(100)), pool.handle)

    def test_serves_raw_blocks(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            raw = torch.cuda.caching_allocator_alloc(MIB)
        self.assertEqual(commpool.block_of(raw).pool, pool.handle)
        torch.cuda.caching_allocator_delete(raw)
        self.assertIsNone(commpool.block_of(raw))

    def test_records_streams(self):
        pool, stream = self.pool(), torch.cuda.Stream()
        used = tensor_in(pool, 2 * MIB)
        with torch.cuda.stream(stream):
            used.fill_(1)
        used.record_stream(stream)
        del used
        with commpool.use_pool(pool):
            tensor(2 * MIB).fill_(2)  # if the other stream were forgotten, the emulator would report a race
        torch.cuda.synchronize()

    def test_orders_nothing_else_by_what_an_allocator_has_heard(self):
        if os.environ.get("COMMPOOL_DRIVER") != "emulated":
            self.skipTest("the emulator tells races")
        stream, pool, lending = torch.cuda.Stream(), self.pool(), self.pool("lending")
        for used, lender in ((filled_in(pool, 1), None), (filled(1), lending), (filled_in(pool, 1), lending)):
            torch.cuda.synchronize()
            lent = tensor(3 * MIB) if lender is None else tensor_in(lender, 3 * MIB)
            lent_at, later = lent.data_ptr(), []
            with torch.cuda.stream(stream):
                used.add_(1)
                lent.fill_(1)
            lent.record_stream(stream)
            del lent
            while not any(made.data_ptr() == lent_at for made in later):
                later.append(tensor(3 * MIB) if lender is None else tensor_in(lender, 3 * MIB))
            used.add_(2)
            torch.cuda.synchronize()
            race, = reports()
            self.assertIn("race: nothing orders these two", race)
            del later

    def test_copies_between_devices(self):
        self.needs_device(1)
        pool = self.pool()
        with commpool.use_pool(pool):
            source = torch.full((1000,), 7, dtype=torch.float32, device="cuda:0")
        self.assertEqual(source.to("cuda:1").tolist(), [7] * 1000)

    def test_recorded_on_another_device_s_default_stream_serve_behind_it(self):
        self.needs_device(1)
        pool = self.pool(device=1, peers=[0], limit="2MiB")
        recorded = torch.cuda.default_stream(0)
        with torch.cuda.device(1), commpool.use_pool(pool), torch.cuda.stream(torch.cuda.Stream(1)):
            with held(recorded):
                tensor(2 * MIB, device=1).record_stream(recorded)  # device 1 is current
                tensor(2 * MIB, device=1).zero_()
                self.assertFalse(torch.cuda.current_stream(1).query(), "it waits for the other device")
            torch.cuda.synchronize(1)

    def test_are_read_and_written_by_kernels_of_other_devices(self):
        self.needs_device(1)
        for owner, other in [(0, 1), (1, 0)]:
            pool = self.pool(device=owner)
            with commpool.use_pool(pool):
                ours = torch.arange(6.0).reshape(2, 3).to(f"cuda:{owner}")
                into = torch.empty(2, 3, device=f"cuda:{owner}")
            # a kernel, because it is no plain copy
            theirs = torch.empty(3, 2, device=f"cuda:{other}").copy_(ours.t())
            into.copy_(theirs.t())
            self.assert_in(pool, into)
            self.assertEqual(into.tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_refuses_to_share_what_moves_with_other_processes(self):
        pool = self.pool(mode="expandable")
        ours = tensor_in(pool)
        with self.assertRaisesRegex(RuntimeError, "an expandable pool moves its pages.*tensor.clone"):
            ours.untyped_storage()._share_cuda_()


class TorchsStatistics(RoutedCase):
    def test_count_both(self):
        pool = self.pool()
        before = torch.cuda.memory_stats()
        kept = tensor_in(pool, 3 * MIB)
        now = torch.cuda.memory_stats()
        grown = {name: now[name] - before[name] for name in now if name in before}
        wanted = {"allocated_bytes.all.current": 3 * MIB, "requested_bytes.all.current": 3 * MIB,
                  "active.all.current": 1, "allocation.all.allocated": 1, "segment.all.current": 1,
                  "reserved_bytes.all.current": pool.stats().reserved_bytes.current, "num_device_alloc": 1}
        self.assertEqual({name: grown[name] for name in wanted}, wanted)
        for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
            self.assertEqual(getattr(torch.accelerator, name)(), getattr(torch.cuda, name)(), name)
        self.assertEqual(torch.accelerator.memory_stats()["allocated_bytes.all.current"],
                         now["allocated_bytes.all.current"])
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        del kept
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.freed"] - before["allocation.all.freed"], 1)

    def test_begin_anew(self):
        pool = self.pool()
        tensor_in(pool, 8 * MIB)
        small = tensor_in(pool)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        now = torch.cuda.memory_stats()
        self.assertEqual(now["allocated_bytes.all.peak"], now["allocated_bytes.all.current"])
        self.assertEqual((now["allocation.all.allocated"], now["allocation.all.freed"]), (0, 0))
        del small
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.freed"], 1)

    def test_begin_anew_while_a_block_waits_for_a_stream(self):
        pool, stream, graph = self.pool(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with held(stream):
            tensor_in(pool).record_stream(stream)
            torch.cuda.reset_accumulated_memory_stats()
        tensor_in(pool, 100)
        self.assertEqual(below_zero(torch.cuda.memory_stats()), {})
        with commpool.use_pool(self.pool("of a graph")), torch.cuda.graph(graph):
            filled(1, 100)  # its whole segment waits for the graph
        self.assertEqual(below_zero(torch.cuda.memory_stats()), {})

    def test_name_private_pools(self):
        pool = self.pool()
        kept = tensor_in(pool)
        by_pool = torch.cuda.memory_stats_as_nested_dict().get("reserved_bytes_by_private_pools")
        if by_pool is None:
            self.skipTest(f"torch {torch.__version__} has no such figures")
        stats = by_pool.values() if isinstance(by_pool, dict) else by_pool
        self.assertIn(pool.stats().reserved_bytes.current, [stat["all"]["current"] for stat in stats])
        del kept

    def test_empty_cache_gives_idle_segments_back_in_a_scope_too(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            tensor(MIB)
            self.assertGreater(pool.stats().reserved_bytes.current, 0)
            torch.cuda.empty_cache()
            self.assertEqual(pool.stats().reserved_bytes.current, 0)
            tensor(MIB)
            torch.accelerator.empty_cache()
            self.assertEqual(pool.stats().reserved_bytes.current, 0)

    def test_empty_cache_leaves_what_was_reserved(self):
        pool = self.pool(reserve="8MiB")
        with commpool.use_pool(pool):
            torch.cuda.empty_cache()
        self.assertEqual(pool.stats().reserved_bytes.current, 8 * MIB)
        pool.trim()
        self.assertEqual(pool.stats().reserved_bytes.current, 0)


class DefaultPools(RoutedCase):
    def test_of_a_device_are_pools_as_others_and_stay(self):
        pool = commpool.Pool.default()
        pool.reserve("4MiB")
        self.assertGreaterEqual(pool.kept_bytes, 4 * MIB)
        pool.trim()
        self.assertEqual((pool.kept_bytes, pool.abandons_itself), (0, False))
        for end in (pool.close, pool.destroy):
            self.assertRaisesRegex(commpool.InvalidArgument, "the default pool of device 0 is the library's", end)


class OutOfMemory(RoutedCase):
    def test_is_torch_s_error_with_both_tables(self):
        pool = self.pool("limited", limit="8MiB")
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            tensor_in(pool, 16 * MIB)
        for words in ["CUDA out of memory", "16.00 MiB", "limited", "PyTorch's own allocator has"]:
            self.assertIn(words, str(caught.exception))
        self.assertEqual(pool.stats().allocated_blocks.current, 0)

    def test_is_told_to_observers_and_counted(self):
        pool, seen = self.pool(limit="8MiB"), []
        torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
        before = torch.cuda.memory_stats()["num_ooms"]
        self.assertRaises(torch.OutOfMemoryError, tensor_in, pool, 16 * MIB)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], before + 1)
        free, total = torch.cuda.mem_get_info(0)
        self.assertEqual(seen, [(0, 16 * MIB, total, free)])

    def test_takes_from_torch_s_cache_what_a_pool_needs(self):
        device = min(2, torch.cuda.device_count() - 1)
        most = torch.cuda.mem_get_info(device)[0]
        tensor(most // 2, device)
        self.assert_serves(self.pool(device=device), most * 3 // 4)

    def test_takes_from_idle_pools_what_torch_needs(self):
        device = torch.cuda.device_count() - 1
        pool, idle = self.pool(device=device), self.pool(device=device)
        most = torch.cuda.mem_get_info(device)[0]
        routed = tensor_in(pool, most // 2)
        too_little = tensor_in(idle, 4 * MIB)
        del too_little
        with self.assertRaisesRegex(torch.OutOfMemoryError, f"commpool's pools on device {device}: "):
            tensor(most * 3 // 4, device)
        del routed
        self.assert_native(tensor(most * 3 // 4, device))

    def test_comes_at_the_fraction_that_was_set(self):
        pool, total = self.pool(), torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(0.01)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        self.assertRaises(torch.OutOfMemoryError, tensor_in, pool, total // 50)
        torch.cuda.set_per_process_memory_fraction(1.0)
        self.assert_serves(pool, total // 50)


class Uninstalling(RoutedCase):
    def tearDown(self):
        super().tearDown()
        commpool.install()

    def test_keeps_what_is_alive_and_routes_nothing_more(self):
        pool, stream = self.pool(), torch.cuda.Stream()
        with commpool.use_pool(pool):
            ours, raw = tensor(MIB), torch.cuda.caching_allocator_alloc(MIB)
            self.assertFalse(commpool.uninstall(), "it stays as a forwarder")
            self.assertFalse(commpool.installed())
            self.assert_native(tensor(MIB))
        ours.record_stream(stream)
        torch.cuda.caching_allocator_delete(raw)
        del ours
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
        self.assertTrue(commpool.uninstall())
        self.assert_native(tensor(MIB))

    def test_waits_for_tensors_of_pools_that_have_ended(self):
        ours = tensor_in(commpool.Pool("ended"))
        self.assertFalse(commpool.uninstall())
        del ours
        self.assertTrue(commpool.uninstall())

    def test_is_undone_by_the_next_scope(self):
        pool = self.pool()
        with commpool.use_pool(pool):
            pass
        commpool.uninstall()
        self.assert_serves(pool)
