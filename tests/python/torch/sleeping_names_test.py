"""The names of torch_memory_saver and vLLM for sleep, over our pools; and how torch reads what is kept."""

import contextlib
import gc
import os
import tempfile
from unittest import mock

import numpy
import torch

import routed
from routed import MIB, RoutedCase, commpool, on_threads, pool_of, run_of_page, tensor
from commpool.torch import dropins
from commpool.torch.dropins import CuMemAllocator, TorchMemorySaver, torch_memory_saver

LENGTH = 4 * MIB


def filled(value, numel=LENGTH):
    return routed.filled(value, numel)


def total(of_tensor):
    """The sum. The emulator has no kernel for it."""
    return of_tensor.cpu().sum().item()


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


class Kept(RoutedCase):
    def test_is_a_tensor_on_the_cpu_while_the_pool_sleeps(self):
        pool = self.pool()
        weights = routed.filled_in(pool, 2.5, 3 << 16, torch.float32).view(3, -1)
        halves = routed.filled_in(pool, 1.5, 5, torch.bfloat16)
        pool.sleep(keep="pageable")
        kept = torch.from_dlpack(pool.kept(weights))
        self.assertEqual((kept.device.type, kept.shape, kept.dtype), ("cpu", weights.shape, weights.dtype))
        self.assertEqual(kept.data_ptr(), pool.kept(weights).pointer, "no copy")
        self.assertTrue(torch.equal(kept, torch.full((3, 1 << 16), 2.5)))
        self.assertEqual(torch.from_dlpack(pool.kept(halves)).tolist(), [1.5] * 5)
        self.assertEqual(torch.from_dlpack(pool.kept(weights[1])).tolist()[:3], [2.5] * 3)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            pool.kept(weights.t())
        del kept
        pool.wake()
        self.assertEqual(total(weights), 2.5 * weights.numel())

    def test_outlives_the_sleep_in_the_program_of_the_page(self):
        pool, sent = self.pool(), []
        with commpool.use_pool(pool):
            names = {name: filled(place) for place, name in enumerate(("embedding", "weights", "optimizer_state"))}
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run_of_page("reference.md", "pool.sleep(keep=", pool=pool, torch=torch, numpy=numpy, send=sent.append,
                        **names)
            self.assertTrue((numpy.load("weights.npy") == 1).all())
        self.assertEqual((sent[0][0], pool.asleep, total(names["weights"])), (2, False, LENGTH))


class MemorySaver(RoutedCase):
    def setUp(self):
        self.saver = TorchMemorySaver()

    def tearDown(self):
        del self.saver
        gc.collect()
        super().tearDown()

    def in_region(self, value, numel=LENGTH, **words):
        """A tensor that is made in a region."""
        with self.saver.region(**words):
            return filled(value, numel)

    def check_pause_frees(self, nbytes, tag=None):
        before = free_bytes()
        self.saver.pause(tag)
        self.assertGreaterEqual(free_bytes(), before + nbytes)

    def graph_of(self, value, handle, tag):
        """A captured graph that fills a tensor, and that tensor."""
        graph = torch.cuda.CUDAGraph()
        with self.saver.cuda_graph(graph, pool=handle, tag=tag):
            return graph, filled(value)

    def test_a_region_is_paused_and_resumed_at_its_addresses(self):
        self.saver.hook_mode = "preload"
        outside = filled(1)
        inside = self.in_region(2)
        address = inside.data_ptr()
        self.check_pause_frees(LENGTH)
        self.saver.pause()  # it is paused
        other = filled(3)
        self.saver.resume()
        self.saver.resume()
        self.assertEqual(inside.data_ptr(), address)
        self.assertEqual((outside[7].item(), other[7].item()), (1, 3))
        self.assertEqual(total(inside.fill_(4)), 4 * LENGTH)

    def test_tags_are_paused_by_themselves_and_one_that_nobody_has_is_nothing(self):
        weights = self.in_region(2, tag="weights", enable_cpu_backup=True)
        cache = self.in_region(3, tag="cache")
        self.check_pause_frees(cache.nbytes, "cache")
        self.assertEqual(weights[7].item(), 2)
        before = free_bytes()
        self.saver.pause("nobody's")
        self.assertEqual(free_bytes(), before)
        self.check_pause_frees(LENGTH)
        self.saver.resume("weights")
        self.assertEqual(total(weights), 2 * LENGTH)
        self.saver.resume()

    def test_each_backup_brings_contents_back(self):
        with tempfile.TemporaryDirectory() as directory:
            made = os.path.join(directory, "made")
            self.saver.set_disk_backup_dir(made)
            for words in ({"enable_cpu_backup": True}, {"enable_cpu_backup": True, "cpu_backup_backend": "mmap"},
                          {"enable_disk_backup": True}):
                large, small = self.in_region(5, **words), self.in_region(6, 700, **words)
                for _ in range(2):
                    self.saver.pause()
                    files = 2 if "enable_disk_backup" in words else 0
                    self.assertEqual(len(os.listdir(made)), files, f"large and small ones, {words}")
                    self.saver.resume()
                    self.assertEqual((total(large), total(small)), (5 * LENGTH, 6 * 700), words)
                self.assertEqual(os.listdir(made), [], words)
                del large, small

    def test_a_backup_is_read_while_it_is_paused(self):
        with self.saver.region(enable_cpu_backup=True):
            kept = torch.full((10, 20), 1.5, device="cuda")
        discarded = self.in_region(1)
        self.saver.pause()
        backup = self.saver.get_cpu_backup(kept)
        shown = self.saver.get_cpu_backup(kept, zero_copy=True)
        self.assertEqual((backup.device.type, backup.shape, backup.dtype), ("cpu", kept.shape, kept.dtype))
        self.assertTrue(torch.equal(backup, shown))
        self.assertNotEqual(backup.data_ptr(), shown.data_ptr())
        for of_tensor, why in ((discarded, "were discarded"), (filled(1), "in no region")):
            with self.assertRaisesRegex(LookupError, why):
                self.saver.get_cpu_backup(of_tensor)
        del shown
        self.saver.resume()
        self.assertIsNone(self.saver.get_cpu_backup(kept))
        self.assertTrue(torch.equal(backup, kept.cpu()))

    def test_a_retained_backup_stays_where_it_is_and_is_renewed(self):
        kept = self.in_region(1, enable_cpu_backup=True)
        self.saver.pause()
        place = self.saver.get_cpu_backup(kept, zero_copy=True).data_ptr()
        self.saver.retain_cpu_backup = True  # read when it is resumed
        self.saver.resume()
        self.saver.retain_cpu_backup = False
        self.assertEqual(self.saver.get_cpu_backup(kept, zero_copy=True).data_ptr(), place)
        kept.fill_(2)
        self.assertEqual(self.saver.get_cpu_backup(kept)[7].item(), 1)
        self.saver.pause()
        renewed = self.saver.get_cpu_backup(kept, zero_copy=True)
        self.assertEqual((renewed.data_ptr(), renewed[7].item()), (place, 2))
        del renewed
        self.saver.resume()
        self.assertIsNone(self.saver.get_cpu_backup(kept))
        self.assertEqual(total(kept), 2 * LENGTH)

    def test_a_region_that_is_entered_while_it_is_paused_serves_and_sleeps_with_it_next_time(self):
        first = self.in_region(1, enable_cpu_backup=True)
        self.saver.pause()
        second = self.in_region(2, enable_cpu_backup=True)
        self.assertEqual(second[7].item(), 2)
        self.saver.resume()
        self.assertNotEqual(pool_of(first), pool_of(second))
        self.check_pause_frees(2 * LENGTH)
        self.saver.resume()
        self.assertEqual((first[7].item(), second[7].item()), (1, 2))

    def test_disable_is_torch_s_own_memory(self):
        with self.saver.region():
            with self.saver.disable():
                outside = filled(1)
            inside = filled(2)
        self.assert_native(outside)
        self.saver.pause()
        self.assertEqual(total(outside), LENGTH)
        self.saver.resume()
        self.assertIsNotNone(pool_of(inside))

    def test_a_graph_s_memory_is_paused_and_replayed(self):
        for handle in (None, torch.cuda.graph_pool_handle()):
            graphs = {value: self.graph_of(value, handle, "graph") for value in (3, 4)}
            made = graphs[3][1]
            self.assertIsNotNone(pool_of(made))
            address = made.data_ptr()
            self.check_pause_frees(1, "graph")
            self.saver.resume("graph")
            for value, (graph, of_graph) in graphs.items():
                graph.replay()
                self.assertEqual(total(of_graph), value * LENGTH)
            self.assertEqual(made.data_ptr(), address)
            del graph, graphs, made, of_graph

    def test_a_graph_s_pool_that_is_given_on_is_shared(self):
        graphs, handle, pools = [], None, set()
        for value in (3, 4, 5):
            graph, made = self.graph_of(value, handle, "graph")
            pools.add(pool_of(made))
            del made
            handle = graph.pool()
            graphs.append(graph)
        self.assertEqual(len(pools), 1)
        other = self.graph_of(6, handle, "other")[1]
        self.assertNotIn(pool_of(other), pools, "what is paused with another tag lies apart")
        self.saver.pause("graph")
        self.saver.resume("graph")
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()

    def test_graphs_of_each_handle_take_turns_in_one_pool(self):
        pools = set()
        for value in range(4):
            graph, made = self.graph_of(value, torch.cuda.graph_pool_handle(), "graph")
            pools.add(pool_of(made))
            del graph, made
        self.assertEqual(len(pools), 1)
        [pool] = [pool for pool in commpool.pools() if pool.handle in pools]
        self.assertLess(pool.stats().reserved_bytes.peak, 3 * LENGTH, "a graph that is gone keeps no memory")

    def test_graphs_of_one_handle_share_memory_and_those_of_others_do_not(self):
        handles = [torch.cuda.graph_pool_handle() for _ in range(2)]
        graphs = [self.graph_of(value, handle, "shared")[0] for handle in handles for value in range(4)]
        [first, second] = [pool for pool in commpool.pools() if pool.name == "graphs shared"]
        for pool in (first, second):
            self.assertLess(pool.stats().reserved_bytes.peak, 2 * LENGTH, "what one has dropped serves the next")
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()

    def test_a_cycle_makes_no_pool_more_than_the_last_one(self):
        weights, pools = self.in_region(1), set()
        for _ in range(4):
            self.saver.pause()
            meanwhile = self.in_region(2)
            pools.add(pool_of(meanwhile))
            self.saver.resume()
            del meanwhile
        self.assertEqual(len(pools), 1)
        del weights

    def test_a_tag_that_is_empty_is_all_of_them(self):
        weights = self.in_region(1, tag="weights")
        self.check_pause_frees(LENGTH, "")
        self.saver.resume("")
        self.assertEqual(weights.fill_(2)[7].item(), 2)

    def test_a_pause_that_fails_for_a_tag_pauses_the_others_and_a_second_one_goes_on(self):
        self.saver.set_disk_backup_dir("/dev/shm")
        kept = self.in_region(5, tag="kept", enable_disk_backup=True)
        cache, before = self.in_region(1, tag="cache"), free_bytes()
        with self.assertRaisesRegex(ValueError, "lies in the host's memory"):
            self.saver.pause()
        self.assertGreaterEqual(free_bytes(), before + cache.nbytes, "the cache is paused")
        self.assertEqual(total(kept), 5 * LENGTH)
        with tempfile.TemporaryDirectory() as directory:
            self.saver.set_disk_backup_dir(directory)
            self.check_pause_frees(LENGTH)
            self.saver.resume()
        self.assertEqual(total(kept), 5 * LENGTH)

    def test_threads_may_pause_at_once(self):
        kept = self.in_region(3, enable_cpu_backup=True)

        def act():
            for _ in range(5):
                self.saver.pause()
                self.saver.resume()

        on_threads(*[act] * 4)
        self.saver.resume()
        self.assertEqual(total(kept), 3 * LENGTH)

    def test_a_backup_of_each_type_is_read(self):
        types = [torch.bool, torch.uint16, torch.complex32, torch.complex64, torch.float8_e4m3fnuz,
                 torch.float8_e8m0fnu]
        with self.saver.region(enable_cpu_backup=True):
            kept = [torch.empty((2, 3), dtype=kind, device="cuda") for kind in types]
            kept.append(torch.full((), 2.5, device="cuda"))
        self.saver.pause()
        for of_type in kept:
            backup = self.saver.get_cpu_backup(of_type)
            self.assertEqual((backup.dtype, backup.shape), (of_type.dtype, of_type.shape))
        self.assertEqual(backup.item(), 2.5)
        self.saver.resume()

    def test_the_directory_of_the_variable_is_made(self):
        with tempfile.TemporaryDirectory() as directory:
            made = os.path.join(directory, "not", "there")
            with mock.patch.dict(os.environ, TMS_DISK_BACKUP_DIR=made):
                self.saver = TorchMemorySaver()
                kept = self.in_region(5, enable_disk_backup=True)
            self.saver.pause()
            self.assertEqual(len(os.listdir(made)), 1)
            self.saver.resume()
            self.assertEqual(total(kept), 5 * LENGTH)
            del kept

    def test_a_margin_is_kept_free_of_regions(self):
        self.addCleanup(commpool.set_device_limit, torch.cuda.current_device(), None)
        self.saver.memory_margin_bytes = torch.cuda.mem_get_info()[1] - 32 * MIB
        self.assertRaises(torch.OutOfMemoryError, self.in_region, 1, 64 * MIB)
        self.saver.memory_margin_bytes = 0
        self.in_region(1, 64 * MIB)
        with self.assertRaises(NotImplementedError):
            self.saver.memory_margin_bytes

    def test_subprocesses_need_no_preloading(self):
        before = dict(os.environ)
        with dropins.configure_subprocess():
            self.assertEqual(dict(os.environ), before)

    def test_what_the_original_asserts_is_an_assertion_error_too(self):
        with self.assertRaises(AssertionError), self.saver.region(enable_cpu_backup=True, enable_disk_backup=True):
            pass
        kept = self.in_region(1, enable_cpu_backup=True)
        for wrong in (kept.view(2, -1).t(), torch.zeros(3)):
            self.assertRaises(AssertionError, self.saver.get_cpu_backup, wrong)

    def test_words_that_exclude_each_other_are_refused(self):
        for words in ({"enable_cpu_backup": True, "enable_disk_backup": True}, {"cpu_backup_backend": "mmap"},
                      {"enable_cpu_backup": True, "cpu_backup_backend": "tape"}):
            with self.subTest(words), self.assertRaises(ValueError), self.saver.region(**words):
                pass
        self.saver.set_disk_backup_dir("/dev/shm")
        in_memory = self.in_region(1, enable_disk_backup=True)
        with self.assertRaisesRegex(ValueError, "lies in the host's memory"):
            self.saver.pause()
        self.assertEqual(total(in_memory), LENGTH, "it is not paused")

    def test_is_there_once_for_the_process_and_reads_its_variables(self):
        run_of_page("commpool/torch/reference.md", "from commpool.torch.dropins import")
        self.assertIsInstance(torch_memory_saver, TorchMemorySaver)
        self.assertTrue(torch_memory_saver.enabled)
        self.assertFalse(torch_memory_saver.retain_cpu_backup)
        with mock.patch.dict(os.environ, TMS_RETAIN_CPU_BACKUP="1"):
            self.assertTrue(TorchMemorySaver().retain_cpu_backup)


class Cumem(RoutedCase):
    def setUp(self):
        self.allocator = CuMemAllocator()

    def tearDown(self):
        del self.allocator
        gc.collect()
        super().tearDown()

    def test_there_is_one(self):
        self.assertIs(CuMemAllocator.get_instance(), CuMemAllocator.get_instance())

    def test_offloads_tags_and_discards_the_rest(self):
        with self.allocator.use_memory_pool("weights"):
            weights = filled(2)
        with self.allocator.use_memory_pool(tag="cache"):
            cache, unused = filled(3), filled(4, 64 * MIB)
            del unused
        address, usage, before = cache.data_ptr(), self.allocator.get_current_usage(), free_bytes()
        self.assertLess(usage, 64 * MIB, "what is unused goes back as the scope ends")
        self.allocator.sleep(offload_tags=("weights",))
        self.assertGreaterEqual(free_bytes(), before + usage)
        self.assertEqual(self.allocator.get_current_usage(), usage)
        self.allocator.wake_up(tags=["weights"])
        self.assertEqual(total(weights), 2 * LENGTH)
        self.allocator.wake_up()
        self.assertEqual((cache.data_ptr(), total(cache.fill_(5))), (address, 5 * LENGTH))
        for tags in (None, "default", ()):
            self.allocator.sleep(tags)
            self.allocator.wake_up()

    def test_gives_unused_memory_back_where_an_exception_leaves_too(self):
        with self.assertRaises(ZeroDivisionError), self.allocator.use_memory_pool():
            tensor(64 * MIB)
            1 // 0
        self.assertEqual(self.allocator.get_current_usage(), 0)
        self.assert_native(tensor(MIB))

    def test_keeps_the_default_tag_by_default(self):
        with self.allocator.use_memory_pool():
            kept = filled(2)
        self.allocator.sleep()
        self.allocator.wake_up()
        self.assertEqual(total(kept), 2 * LENGTH)

    def test_out_of_memory_on_waking_is_a_runtime_error_and_a_second_call_goes_on(self):
        nbytes = int(torch.cuda.mem_get_info()[1] * 0.7)
        with self.allocator.use_memory_pool("cache"):
            cache = tensor(nbytes)
        self.allocator.sleep()
        other = tensor(nbytes)
        with self.assertRaisesRegex(RuntimeError, "(?s)waking .*reserved"):
            self.allocator.wake_up()
        del other
        torch.cuda.empty_cache()
        self.allocator.wake_up()
        self.assertEqual(total(cache[:MIB].fill_(1)), MIB)
