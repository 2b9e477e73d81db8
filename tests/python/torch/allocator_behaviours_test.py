"""What PyTorch documents about its allocator, as cases with few kernels.

The word after the files chooses who serves: router, or whole, a pool as the whole allocator; else PyTorch's own.
"""

import ctypes
import gc
import pathlib
import sys
import tempfile
import unittest

import torch

from on_emulator import EmulatorCase, blocks_of, on_threads

MIB = 1 << 20
ROUTED, WHOLE = not {"router", "whole"}.isdisjoint(sys.argv), "whole" in sys.argv

if ROUTED:
    from routed import commpool, pool_of


def tensor(mebibytes=2, **options):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda", **options)


def lies_in(pool, inner):
    return inner.data_ptr() in blocks_of(pool.snapshot())


# torch.compile gives its code such a name, and the compile context is the name.
COMPILED = type(torch.autograd.Function)("Torch-Compiled Region: 0/0", (torch.autograd.Function,),
                                         {"forward": staticmethod(lambda ctx: tensor(5))})


def setUpModule():
    if ROUTED:
        torch.cuda.init()
        global whole
        whole = commpool.Pool("whole", mode="expandable") if WHOLE else None
        if not commpool.install(default=whole):
            raise unittest.SkipTest("there is no router and no compiler")
        unittest.addModuleCleanup(commpool.uninstall)


class AllocatorBehaviours(EmulatorCase):
    def setUp(self):
        if ROUTED:
            self.assertTrue(commpool.installed())
            self.assertEqual(pool_of(tensor()), whole.handle if WHOLE else None)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def tearDown(self):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        super().tearDown()


class Statistics(AllocatorBehaviours):
    def test_count_what_is_allocated_and_reserved(self):
        before = torch.cuda.memory_allocated()
        held = tensor(4)
        self.assertEqual(torch.cuda.memory_allocated() - before, 4 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), 4 * MIB)
        self.assertEqual(torch.accelerator.memory_allocated(), torch.cuda.memory_allocated())
        statistics = torch.cuda.memory_stats()
        self.assertEqual(statistics["allocated_bytes.all.current"], torch.cuda.memory_allocated())
        del held
        self.assertEqual(torch.cuda.memory_allocated(), before)

    def test_remember_the_peak_until_it_is_reset(self):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        held = tensor(6)
        del held
        self.assertEqual(torch.cuda.max_memory_allocated() - before, 6 * MIB)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), before)

    def test_tell_small_from_large(self):
        """A request of at most 1 MiB is small."""
        torch.cuda.memory._snapshot()  # makes what it allocates itself
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        before = torch.cuda.memory_stats()

        def grown(kind):
            now = torch.cuda.memory_stats()
            return {figure: [now[f"{figure}.{kind}_pool.{word}"] - before[f"{figure}.{kind}_pool.{word}"]
                             for word in ("current", "peak", "allocated", "freed")]
                    for figure in ("allocation", "allocated_bytes", "requested_bytes", "active", "active_bytes")}

        small = torch.empty(MIB - 7, dtype=torch.uint8, device="cuda")
        large, raw = torch.empty(MIB + 9, dtype=torch.uint8, device="cuda"), torch.cuda.caching_allocator_alloc(2 * MIB)
        for kind, blocks, requested, allocated in [("small", 1, MIB - 7, MIB),
                                                   ("large", 2, 3 * MIB + 9, 3 * MIB + 512)]:
            self.assertEqual(grown(kind), {"allocation": [blocks] * 3 + [0], "active": [blocks] * 3 + [0],
                                           "allocated_bytes": [allocated] * 3 + [0],
                                           "active_bytes": [allocated] * 3 + [0],
                                           "requested_bytes": [requested] * 3 + [0]}, kind)
        types = {address: segment["segment_type"] for segment in torch.cuda.memory_snapshot()
                 for address in blocks_of([segment])}
        self.assertEqual([types[small.data_ptr()], types[large.data_ptr()], types[raw]], ["small", "large", "large"])
        now = torch.cuda.memory_stats()
        for figure in ("reserved_bytes", "segment"):
            of_small, of_large, of_all = (now[f"{figure}.{kind}.current"]
                                          for kind in ("small_pool", "large_pool", "all"))
            self.assertGreater(of_small, 0, figure)
            self.assertEqual(of_small + of_large, of_all, figure)
        torch.cuda.caching_allocator_delete(raw)
        del small, large
        for kind, blocks, allocated in [("small", 1, MIB), ("large", 2, 3 * MIB + 512)]:
            self.assertEqual(grown(kind)["allocation"], [0, blocks, blocks, blocks], kind)
            self.assertEqual(grown(kind)["allocated_bytes"], [0, allocated, allocated, allocated], kind)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual([grown(kind)["allocation"][1] for kind in ("small", "large")], [0, 0])

    def test_are_shown_as_a_table(self):
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        self.assertEqual(torch.cuda.get_allocator_backend(), "native")


class Cache(AllocatorBehaviours):
    def test_serves_freed_memory_again(self):
        first = tensor()
        address = first.data_ptr()
        del first
        self.assertEqual(tensor().data_ptr(), address)

    def test_goes_back_to_the_driver_when_it_is_emptied(self):
        free = torch.cuda.mem_get_info()[0]
        held = tensor(64)
        del held
        self.assertLess(torch.cuda.mem_get_info()[0], free)
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.mem_get_info()[0], free)

    def test_waits_for_recorded_streams(self):
        side = torch.cuda.Stream()
        held = tensor()
        address = held.data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            held.zero_()
        held.record_stream(side)
        del held
        side.synchronize()
        self.assertEqual(tensor().data_ptr(), address, "what its streams are done with is served again")

    def test_has_memory_for_other_libraries(self):
        address = torch.cuda.caching_allocator_alloc(3 * MIB)
        self.assertEqual(blocks_of(torch.cuda.memory_snapshot())[address]["state"], "active_allocated")
        torch.cuda.caching_allocator_delete(address)


class Exhaustion(AllocatorBehaviours):
    def check_error(self, mebibytes, words):
        with self.assertRaisesRegex(torch.OutOfMemoryError, words):
            tensor(mebibytes)
        self.assertTrue(tensor().is_cuda, "and the next request is served")

    def test_is_an_error_of_its_own_type(self):
        self.check_error(1 << 20, r"^CUDA out of memory\. Tried to allocate 1024\.00 GiB\. GPU 0 has a total capacity "
                                  r"of \d+\.\d\d GiB of which \d+\.\d\d GiB is free\. ")

    def test_of_a_size_that_no_device_has_names_no_device(self):
        self.check_error(4 << 40, r"^CUDA out of memory\. Tried to allocate more than 1EB memory\.")

    def test_comes_at_the_fraction_of_the_process(self):
        torch.cuda.set_per_process_memory_fraction(0.01)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        self.assertRaises(torch.OutOfMemoryError, tensor, 4 << 10)
        self.assertAlmostEqual(torch.cuda.get_per_process_memory_fraction(), 0.01)

    def test_is_told_to_observers(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
        self.assertRaises(torch.OutOfMemoryError, tensor, 1 << 20)
        self.assertEqual(len(seen), 1)
        self.assertEqual(seen[0][:2], (0, 1 << 40))


class Snapshots(AllocatorBehaviours):
    def record(self, **words):
        """The history, until the case ends."""
        torch.cuda.memory._record_memory_history(**words)
        self.addCleanup(torch.cuda.memory._record_memory_history, enabled=None)

    def segment_of(self, held):
        segment, = [segment for segment in torch.cuda.memory_snapshot()
                    if held.data_ptr() in blocks_of([segment])]
        return segment

    def test_hold_the_blocks_of_each_segment(self):
        held = tensor(3)
        segment = self.segment_of(held)
        self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])

    def test_hold_the_history_with_its_stacks(self):
        self.record(stacks="python")
        size = tensor(5).untyped_storage().nbytes()
        trace = [entry for entry in torch.cuda.memory._snapshot()["device_traces"][0] if entry["size"] == size]
        self.assertEqual([entry["action"] for entry in trace if entry["action"] in ("alloc", "free_completed")],
                         ["alloc", "free_completed"])
        made = next(entry for entry in trace if entry["action"] == "alloc")
        self.assertIn("tensor", [frame["name"] for frame in made["frames"]])

    def test_hold_what_the_program_noted_of_each_event(self):
        self.addCleanup(torch.cuda.memory._set_memory_metadata, "")
        self.record(context=None, compile_context=True)
        torch.cuda.memory._set_memory_metadata("of the test")
        held = COMPILED.apply()
        torch.cuda.memory._annotate_tensor(held, "kept")
        torch.cuda.memory._set_memory_metadata("")
        address = held.data_ptr()
        del held
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        self.assertEqual([(entry["action"], entry["user_metadata"], entry["compile_context"]) for entry in trace
                          if entry.get("addr") == address and not entry["action"].startswith("segment")],
                         [("alloc", "of the test", "Torch-Compiled Region: 0/0"), ("annotate", "kept", "N/A"),
                          ("free_requested", "", "N/A"), ("free_completed", "", "N/A")])

    def test_name_no_private_pool_where_the_program_made_none(self):
        self.record(context=None)
        held = tensor(3)
        pools = {entry["pool_id"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]
                 if entry.get("addr") == held.data_ptr()}
        self.assertEqual(pools | {self.segment_of(held)["segment_pool_id"]}, {(0, 0)})

    def test_can_be_written_to_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "snapshot.pickle"
            torch.cuda.memory._dump_snapshot(str(file))
            self.assertGreater(file.stat().st_size, 100)


class Pools(AllocatorBehaviours):
    def test_take_what_a_thread_allocates_in_their_scope(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = tensor()
        self.assertTrue(lies_in(pool, inside))
        self.assertFalse(lies_in(pool, tensor()))

    def test_leave_other_threads_alone(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            found, = on_threads(tensor)
        self.assertFalse(lies_in(pool, found))

    def test_nest(self):
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        self.assertNotEqual(outer.id, inner.id)
        with torch.cuda.use_mem_pool(outer):
            with torch.cuda.use_mem_pool(inner):
                first = tensor()
            second = tensor()
        self.assertEqual([lies_in(outer, first), lies_in(inner, first)], [False, True])
        self.assertEqual([lies_in(outer, second), lies_in(inner, second)], [True, False])

    def test_serve_their_own_memory_again(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            address = tensor().data_ptr()
        other = tensor()
        self.assertNotEqual(other.data_ptr(), address)
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(tensor().data_ptr(), address)

    def test_give_everything_back_when_they_end(self):
        free = torch.cuda.mem_get_info()[0]
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            held = tensor(32)
        del held
        self.assertLess(torch.cuda.mem_get_info()[0], free)
        del pool
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.mem_get_info()[0], free)

    def test_serve_a_request_that_nothing_else_can(self):
        """The fraction limits torch's memory and ours separately. So the whole allocator has its own share left."""
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            held = tensor(512)
        address = held.data_ptr()
        if WHOLE:
            self.assertIsNone(pool_of(held))
        del held
        torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / torch.cuda.mem_get_info()[1])
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        served = tensor(512)
        if WHOLE:
            self.assertEqual(pool_of(served), whole.handle)
        else:
            self.assertEqual(served.data_ptr(), address)

    def test_take_memory_from_functions_of_the_program(self):
        runtime, made = ctypes.CDLL("libcudart.so.13"), []

        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        def allocate(size, device, stream):
            address = ctypes.c_void_p()
            runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
            made.append(address.value)
            return address.value

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        def free(address, size, device, stream):
            made.remove(address)
            runtime.cudaFree(ctypes.c_void_p(address))

        functions = [ctypes.cast(function, ctypes.c_void_p).value for function in (allocate, free)]
        pool = torch.cuda.MemPool(torch._C._cuda_customAllocator(*functions))
        with torch.cuda.use_mem_pool(pool):
            held = tensor()
        self.assertIn(held.data_ptr(), made)
        del held, pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(made, [])


class GraphPools(AllocatorBehaviours):
    def test_are_shared_by_handle(self):
        handle = torch.cuda.graph_pool_handle()
        graphs, results = [], []
        for value in (1, 2):
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=handle):
                results.append(torch.full((4,), value, device="cuda"))
        self.assertEqual([graph.pool() for graph in graphs], [handle, handle])
        for graph in graphs:
            graph.replay()
        self.assertEqual([result.tolist() for result in results], [[1] * 4, [2] * 4])

    def test_keep_what_the_graph_uses(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            inside = tensor()
            inside.zero_()
        address = inside.data_ptr()
        del inside
        torch.cuda.empty_cache()
        self.assertNotEqual(tensor().data_ptr(), address)
        graph.replay()

    def test_go_back_to_a_checkpoint(self):
        """CUDA graph trees do this: they look for private pools in snapshots."""

        def private(pool=None):
            return [(segment["address"], [(block["size"], block["state"]) for block in segment["blocks"]])
                    for segment in torch.cuda.memory_snapshot()
                    if segment["segment_pool_id"] != (0, 0) and pool in (None, segment["segment_pool_id"])]

        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        before = private()
        with torch.cuda.graph(first):
            kept = tensor(3)
            kept.zero_()
        others, state = tensor(4), torch._C._cuda_getCheckpointState(0, first.pool())
        then = private(first.pool())
        self.assertEqual(len(private()), len(before) + len(then))
        with torch.cuda.graph(second, pool=first.pool()):
            stale = tensor(2)
            stale.zero_()
        self.assertNotEqual(private(first.pool()), then)
        torch._C._cuda_setCheckpointPoolState(0, state, [stale.untyped_storage()._cdata], [])
        self.assertEqual(private(first.pool()), then)
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, first.pool(), {kept.data_ptr()}))
        del stale, kept, others, first, second
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(private(), before)
