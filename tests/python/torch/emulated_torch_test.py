"""PyTorch's unmodified wheel on the emulator: operations without kernels, and those with the few emulated kernels."""

import subprocess
import tempfile
import unittest

import torch

from on_emulator import EmulatorCase, blocks_of, calls, printed_by, reports, run_python
from rank_processes import FOLDER, run_ranks


class Devices(EmulatorCase):
    def test_are_those_of_the_machine(self):
        self.assertTrue(torch.cuda.is_available())
        self.assertEqual(torch.cuda.device_count(), 4)
        properties = torch.cuda.get_device_properties(1)
        self.assertEqual((properties.major, properties.minor, properties.multi_processor_count), (9, 0, 132))
        self.assertEqual(properties.total_memory, 141 << 30)
        self.assertEqual(torch.cuda.mem_get_info(3)[1], 141 << 30)
        self.assertTrue(torch.cuda.can_device_access_peer(0, 1))
        self.assertRaises(torch.AcceleratorError, torch.cuda.set_device, 9)

    def test_that_are_hidden_are_not_there_and_the_others_are_counted_anew(self):
        program = ("import torch; print(torch.cuda.device_count(), *(torch.cuda.get_device_name(number) for number in "
                   "range(torch.cuda.device_count())), torch.cuda.is_available())")
        for visible, said in [("2,1", "2 commpool emulated GPU 2 commpool emulated GPU 1 True"),
                              ("3", "1 commpool emulated GPU 3 True"), ("", "0 False"),
                              ("0,7,1", "1 commpool emulated GPU 0 True")]:
            self.assertEqual(printed_by("-c", program, CUDA_VISIBLE_DEVICES=visible).strip(), said)


class Memory(EmulatorCase):
    def test_is_copied_both_ways(self):
        content = torch.arange(1000, dtype=torch.float64)
        on_device = content.cuda()
        self.assertTrue(torch.equal(on_device.to("cuda:1").cpu(), content))
        pinned = content.pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertTrue(torch.equal(pinned.to("cuda", non_blocking=True).clone().cpu(), content))
        self.assertEqual(on_device[7].item(), 7)

    def test_is_filled(self):
        self.assertEqual(torch.zeros(3, device="cuda").tolist(), [0, 0, 0])
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
                      torch.uint8):
            self.assertEqual(torch.full((3,), 7, dtype=dtype, device="cuda").tolist(), [7, 7, 7], dtype)
        self.assertEqual(torch.ones(2, dtype=torch.bool, device="cuda").tolist(), [True, True])

    def test_is_counted(self):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        tensor = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        self.assertEqual(torch.cuda.memory_allocated() - before, 1 << 20)
        self.assertIn(tensor.data_ptr(), blocks_of(torch.cuda.memory_snapshot()))
        del tensor
        freed = calls("cuMemFree")
        torch.cuda.empty_cache()
        self.assertGreater(calls("cuMemFree"), freed)

    def test_that_there_is_not_is_torchs_own_error(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, r"1024\.00 GiB"):
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")

    def test_of_a_pool_is_apart(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(1 << 20, device="cuda")
        outside = torch.empty(1 << 20, device="cuda")
        self.assertEqual([tensor.data_ptr() in blocks_of(pool.snapshot()) for tensor in (inside, outside)],
                         [True, False])


class OtherAllocators(EmulatorCase):
    def test_expandable_segments_map_pages(self):
        script = ("import torch; tensor = torch.ones(1 << 20, device='cuda'); "
                  "print([segment['is_expandable'] for segment in torch.cuda.memory_snapshot()], tensor[5].item())")
        self.assertEqual(printed_by("-c", script, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "[True] 1.0\n")

    def test_that_tell_of_no_blocks_serve_operations(self):
        source = ("int cudaMalloc(void**, unsigned long); int cudaFree(void*); static void* made; "
                  "void* make(long bytes, int device, void* stream) { cudaMalloc(&made, bytes); return made; } "
                  "void end(void* pointer, long bytes, int device, void* stream) { cudaFree(pointer); }")
        adds = "print((torch.ones(3, device='cuda') + 1).tolist())"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/its.so"], input=source,
                           text=True, check=True, timeout=300)
            change = (f"torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator("
                      f"'{folder}/its.so', 'make', 'end')); ")
            for first, conf in (("", "backend:cudaMallocAsync"), (change, "")):
                printed = printed_by("-c", f"import torch; {first}{adds}", PYTORCH_CUDA_ALLOC_CONF=conf)
                self.assertEqual(printed, "[2.0, 2.0, 2.0]\n")


class Profiler(EmulatorCase):
    def test_sees_what_runs_on_the_host(self):
        script = ("import torch\nwith torch.profiler.profile() as profile: torch.ones(3, device='cuda') + 1\n"
                  "print('aten::add' in profile.key_averages().table())")
        self.assertEqual(printed_by("-c", script), "True\n")


class Ends(EmulatorCase):
    def test_with_work_that_nobody_awaits(self):
        script = ("import torch; square = torch.randn(1200, 1200, device='cuda')\n"
                  "for _ in range(300): square = (square @ square).tanh()")
        self.assertEqual(run_python("-c", script).stderr, "")


class SharedTensors(unittest.TestCase):
    """Tensors of the stock torch in another process."""

    def check(self, expandable):
        printed = printed_by(FOLDER / "shared_tensors_program.py",
                             PYTORCH_CUDA_ALLOC_CONF=f"expandable_segments:{expandable}")
        self.assertEqual(printed.splitlines(), [
            f"expandable {expandable}",
            "the other reads 1000.0 1000.0",
            "it wrote 2500.0 and sent 2100.0",
            "it ends with 0 and leaves 1000.0 2500.0",
        ])

    def test_of_cuda_malloc_are_read_written_and_outlive_the_other_process(self):
        self.check(expandable=False)

    def test_of_expandable_segments_are_too(self):
        self.check(expandable=True)


class ProcessGroup(unittest.TestCase):
    def test_collectives_of_two_ranks_are_right(self):
        for rank, (code, said, errors) in enumerate(run_ranks("collectives_rank.py", 2)):
            self.assertEqual((code, said), (0, "all is well\n"), f"rank {rank}:\n{errors}")


class Streams(EmulatorCase):
    def test_wait_for_each_other(self):
        side = torch.cuda.Stream(priority=-1)
        tensor = torch.zeros(1 << 16, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.fill_(4)
            event = side.record_event()
        event.synchronize()
        self.assertTrue(event.query())
        self.assertEqual(tensor[-1].item(), 4)

    def test_keep_memory_that_they_record(self):
        side = torch.cuda.Stream()
        tensor = torch.zeros(1 << 16, device="cuda")
        address = tensor.data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = tensor.clone()
        tensor.record_stream(side)
        del tensor
        again = torch.zeros(1 << 16, device="cuda")
        side.synchronize()
        self.assertEqual(copy[0].item(), 0)
        self.assertTrue(again.data_ptr() != address or side.query())

    def test_that_do_not_wait_are_reported(self):
        tensor = torch.zeros(1 << 16, device="cuda")
        torch.cuda.synchronize()
        for _ in range(2):
            with torch.cuda.stream(torch.cuda.Stream()):
                tensor.fill_(1)
        torch.cuda.synchronize()
        self.assertTrue(any("race" in line for line in reports()))

    def test_measure_virtual_time(self):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        tensor = torch.empty(1 << 24, device="cuda")
        start.record()
        tensor.zero_()
        end.record()
        end.synchronize()
        self.assertGreater(start.elapsed_time(end), 0.02)  # 64 MiB at 2 TB/s


class Graphs(EmulatorCase):
    def test_repeat_copies_and_fills(self):
        source = torch.full((8,), 3.0, device="cuda")
        target = torch.zeros(8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source)
            target.add_(1)
        self.assertEqual(target.tolist(), [0] * 8, "nothing has run")
        graph.replay()
        self.assertEqual(target.tolist(), [4] * 8)
        source.fill_(5)
        graph.replay()
        self.assertEqual(target.tolist(), [6] * 8)

    def test_own_the_memory_that_they_captured(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = torch.ones(1000, device="cuda")
        graph.replay()
        self.assertEqual(made[999].item(), 1)


class Kernels(EmulatorCase):
    def test_do_simple_arithmetic(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            x = torch.tensor([1.0, 2, 3], dtype=dtype)
            y = torch.tensor([4.0, 0.5, -2], dtype=dtype)
            for formula in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b,
                            lambda a, b: a * 3, lambda a, b: a / 4, lambda a, b: a + 1,
                            lambda a, b: torch.add(a, b, alpha=0.5)):
                self.assertTrue(torch.equal(formula(x.cuda(), y.cuda()).cpu(), formula(x, y)), (dtype, x, y))
        self.assertEqual(torch.ones(2, device="cuda").to(torch.bfloat16).float().tolist(), [1, 1])

    def test_run_backward(self):
        x = torch.full((4,), 3.0, device="cuda", requires_grad=True)
        y = torch.full((4,), 5.0, device="cuda", requires_grad=True)
        for _ in range(2):
            (x * y + x).backward(torch.ones(4, device="cuda"))
        self.assertEqual(x.grad.tolist(), [12] * 4)
        self.assertEqual(y.grad.tolist(), [6] * 4)

    def test_follow_gaps_and_repeats(self):
        matrix = torch.arange(35, dtype=torch.float32).view(5, 7)
        row = torch.arange(7, dtype=torch.float32)
        for name, formula in (
                ("broadcast", lambda a, b: a * b + b), ("transposed", lambda a, b: a.t().contiguous() + 1),
                ("columns", lambda a, b: a[:, 1::2] * 3), ("expanded", lambda a, b: b.expand(4, 7).clone()),
                ("filled", lambda a, b: a.clone()[:, 2:4].fill_(9).contiguous()),
                ("sum", lambda a, b: a.sum()), ("sum of rows", lambda a, b: a.t().sum(0)),
                ("sum of columns", lambda a, b: a.sum(0, keepdim=True)), ("mean", lambda a, b: a.mean(1))):
            self.assertTrue(torch.allclose(formula(matrix.cuda(), row.cuda()).cpu(), formula(matrix, row)), name)
        self.assertEqual(torch.arange(100).cuda().sum().item(), 4950)

    def test_concatenate_flat_tensors(self):
        parts = [torch.arange(count, dtype=torch.bfloat16) for count in (5, 16, 300)]
        self.assertTrue(torch.equal(torch.cat([part.cuda() for part in parts]).cpu(), torch.cat(parts)))

    def test_step_over_lists_of_tensors(self):
        def trained(device):
            weights = [torch.nn.Parameter(torch.full((count,), 1.5, device=device)) for count in (3, 70000)]
            optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.5)
            for _ in range(2):
                optimizer.zero_grad()
                sum((weight * 2).sum() for weight in weights).backward()
                optimizer.step()
            return [weight.detach().cpu() for weight in weights]

        for found, wanted in zip(trained("cuda"), trained("cpu")):
            self.assertTrue(torch.allclose(found, wanted))

    def test_train_a_little(self):
        weight = torch.nn.Parameter(torch.ones(7, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.5, foreach=False)
        batch = torch.arange(14, dtype=torch.float32).view(2, 7).cuda()
        for _ in range(2):
            optimizer.zero_grad()
            (batch * weight + weight).mean().backward()
            optimizer.step()
        gradient = (batch.cpu() + 1).sum(0) / 14
        self.assertTrue(torch.allclose(weight.detach().cpu(), 1 - gradient))

    def test_that_belong_to_no_operation_are_named(self):
        with self.assertRaisesRegex(torch.AcceleratorError, "no kernel image.*spin_kernel"):
            torch.cuda._sleep(1)
        self.assertEqual(torch.ones(2, device="cuda").tolist(), [1, 1], "the device goes on")
