"""PyTorch's operations on the emulator: the values of its CPU kernels, in the order of streams and at replays."""

import copy
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from on_emulator import EmulatorCase, run_python


def _tensor():
    return torch.arange(100, dtype=torch.float32).sub(37).mul(0.37).sin()


_SAME = {
    "matrix product": lambda t: t.view(10, 10) @ t.view(10, 10),
    "bfloat16": lambda t: (t.bfloat16().view(10, 10) @ t.bfloat16().view(10, 10)).float(),
    "softmax of halves in float": lambda t: functional.softmax(t.half(), -1, dtype=torch.float32),
    "attention": lambda t: functional.scaled_dot_product_attention(*(t.view(1, 1, 10, 10),) * 3),
    "sort": lambda t: t.sort()[0],
    "largest": lambda t: t.topk(5)[0],
    "running sum": lambda t: t.cumsum(0),
    "positions": lambda t: (t > 0).nonzero(),
    "mask": lambda t: t[t > 0],
    "unique": lambda t: t.round().unique(),
    "repeat": lambda t: t.repeat_interleave(torch.arange(100, device=t.device) % 3),
    "member": lambda t: torch.isin(t.round(), t.round()[:5]),
    "index of the host": lambda t: t.clone().index_put((torch.arange(3),), torch.ones(3, device=t.device)),
    "spectrum": lambda t: torch.view_as_real(torch.fft.rfft(t)),
    "inverse": lambda t: torch.linalg.inv(t.view(10, 10) + 9 * torch.eye(10, device=t.device)),
    "conjugate": lambda t: torch.view_as_real(torch.complex(t, t).conj().clone()),
    "sparse sum": lambda t: (t.view(10, 10).relu().to_sparse() * 2).to_dense(),
    "nested rows": lambda t: torch.nested.nested_tensor([t[:6].view(2, 3), t[:3].view(1, 3)]).to_padded_tensor(0),
    "windows": lambda t: torch.func.grad(lambda x: (x.unfold(0, 3, 2) ** 2).sum())(t),
    "scaled by powers": lambda t: torch.ldexp(t, torch.arange(100, device=t.device) % 4),
    "bags": lambda t: torch.func.grad(lambda table: functional.embedding_bag(
        torch.arange(10, device=t.device), table, torch.tensor([0, 4], device=t.device), mode="sum").pow(2).sum())(
            t.view(10, 10)),
    "softmax of halves back": lambda t: torch.func.grad(
        lambda x: functional.log_softmax(x, -1, dtype=torch.float32).pow(2).sum())(t.half()),
    "logarithm of sigmoid back": lambda t: torch.func.grad(lambda x: functional.logsigmoid(x).sum())(t),
    "counts of integers": lambda t: torch.histc(t.mul(9).round().to(torch.int if t.is_cuda else torch.float),
                                                5).float(),
    "greatest common divisor": lambda t: torch.gcd((t * 10).long(), (t * 7).long()),
}


_LATER = """
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
extern "C" int cudaLaunchKernel(const void*, unsigned long, unsigned, unsigned long, unsigned, void**, size_t, void*);
at::Tensor OnCpu(const at::Tensor& x) { return at::add(x, x); }
at::Tensor OnGpu(const at::Tensor& x) {
  at::Tensor out = at::empty_like(x);
  TORCH_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(&OnGpu), 1, 1, 1, 1, nullptr, 0, nullptr) == 0);
  return out;
}
TORCH_LIBRARY(later, library) { library.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(later, CPU, library) { library.impl("twice", OnCpu); }
TORCH_LIBRARY_IMPL(later, CUDA, library) { library.impl("twice", OnGpu); }
"""


def gradients_on(device, layer, batch, loss=lambda out: (out ** 2).sum()):
    """What a copy of the layer has for its weights, by name."""
    layer = copy.deepcopy(layer).to(device)
    loss(layer(batch.to(device))).backward()
    return {name: weight.grad.cpu() for name, weight in layer.named_parameters()}


class Operations(EmulatorCase):
    def check_gradients(self, layer, batch, tolerance=0, **words):
        found, wanted = (gradients_on(device, layer, batch, **words) for device in ("cuda", "cpu"))
        torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)

    def test_have_the_values_of_the_cpu(self):
        for name, operation in _SAME.items():
            with self.subTest(name):
                self.assertTrue(torch.equal(operation(_tensor().cuda()).cpu(), operation(_tensor())))

    def test_on_lists_of_several_devices_run_on_each(self):
        ones = [torch.ones(3, device=f"cuda:{number % 2}") for number in range(4)]
        torch._foreach_mul_(ones, 2)
        made = *torch._foreach_norm(ones, 1), *torch._foreach_add(ones, ones)
        self.assertEqual([tensor.tolist() for tensor in made], [6.0] * 4 + [[4.0] * 3] * 4)

    def test_of_a_library_in_python_run_as_it_wrote_them(self):
        library = torch.library.Library("of_this_test", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x - x, "CPU")
        library.impl("twice", lambda x: x + x, "CUDA")
        self.assertEqual(torch.ops.of_this_test.twice(torch.ones(2, device="cuda")).tolist(), [2, 2])

    def test_of_a_library_that_comes_later_run_by_its_kernels_for_the_cpu(self):
        folder = pathlib.Path(torch.__file__).parent
        with tempfile.TemporaryDirectory() as work:
            library = os.path.join(work, "later.so")
            subprocess.run(["g++", "-std=c++20", "-fPIC", "-shared", "-x", "c++", "-", "-o", library,
                            f"-I{folder / 'include'}", f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu"],
                           input=_LATER, text=True, check=True)
            torch.ops.load_library(library)
        self.assertEqual(torch.ops.later.twice(torch.ones(2, device="cuda")).tolist(), [2, 2])

    def test_train_layers_as_the_cpu_does(self):
        convolutions = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
                                     nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 3))
        encoder = nn.TransformerEncoderLayer(32, 4, dropout=0.0)
        for layer, shape in ((convolutions, (2, 3, 16, 16)), (encoder, (4, 2, 32))):
            self.check_gradients(layer, torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape))

    def test_normalise_in_evaluation_and_by_root_mean_squares(self):
        layers = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8).eval(), nn.RMSNorm(8))
        self.check_gradients(layers, torch.linspace(-1, 1, 32).view(4, 8), tolerance=1e-5)

    def test_join_the_statistics_of_ranks(self):
        batch = torch.linspace(-1, 1, 96).view(4, 3, 8).sin().cuda()
        stats = [torch.batch_norm_stats(part, 1e-5) for part in batch.split(2)]
        running = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
        mean, deviation = torch.batch_norm_gather_stats_with_counts(
            batch, *(torch.stack(values) for values in zip(*stats)), *running, 0.1, 1e-5,
            torch.full((2,), 16.0, device="cuda"))
        layer = nn.BatchNorm1d(3)
        wanted = layer(batch.cpu())
        found = torch.batch_norm_elemt(batch, None, None, mean, deviation, 1e-5)
        self.assertTrue(torch.allclose(found.cpu(), wanted, atol=1e-5))
        for have, want in zip(running, (layer.running_mean, layer.running_var)):
            self.assertTrue(torch.allclose(have.cpu(), want, atol=1e-6))

    def test_run_fused_attention_where_the_program_chooses_it(self):
        for backend, type_ in ((SDPBackend.FLASH_ATTENTION, torch.bfloat16),
                               (SDPBackend.EFFICIENT_ATTENTION, torch.float32)):
            results = []
            for device, chosen in (("cpu", SDPBackend.MATH), ("cuda", backend)):
                tensors = [_tensor()[n:64 + n].view(1, 2, 4, 8).to(device, type_).requires_grad_() for n in range(3)]
                with sdpa_kernel(chosen):
                    functional.scaled_dot_product_attention(*tensors, is_causal=True).pow(2).sum().backward()
                results.append([tensor.grad.cpu() for tensor in tensors])
            torch.testing.assert_close(*results)

    def test_drop_the_same_weights_of_fused_attention_in_backward(self):
        value = torch.eye(8, device="cuda").view(1, 1, 8, 8).requires_grad_()
        query = torch.zeros(1, 1, 8, 8, device="cuda")
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            weights = functional.scaled_dot_product_attention(query, query, value, dropout_p=0.5)
        weights.sum().backward()
        self.assertTrue(torch.equal(value.grad[0, 0, :, 0], weights[0, 0].sum(0)))

    def test_multiply_complex_numbers_in_a_graph(self):
        numbers = torch.complex(_tensor(), _tensor()).cuda()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product = numbers * numbers
        numbers.mul_(2)
        graph.replay()
        self.assertTrue(torch.equal(product, numbers * numbers))

    def test_run_recurrent_cells(self):
        for layer in (nn.LSTM(8, 16, 2), nn.GRU(8, 16)):
            self.check_gradients(layer, torch.linspace(-1, 1, 120).view(5, 3, 8), tolerance=1e-5,
                                 loss=lambda out: out[0].sum())

    def test_draw_by_the_devices_generator(self):
        torch.cuda.manual_seed(5)
        first = torch.randn(10, device="cuda")
        self.assertFalse(torch.equal(torch.randn(10, device="cuda"), first))
        torch.cuda.manual_seed(5)
        self.assertTrue(torch.equal(torch.randn(10, device="cuda"), first))
        dropped = functional.dropout(torch.ones(10000, device="cuda"), 0.3)
        self.assertAlmostEqual((dropped == 0).float().mean().item(), 0.3, delta=0.05)

    def test_draw_anew_at_each_replay(self):
        ones = torch.ones(100, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dropped = functional.dropout(ones, 0.5)
        seen = []
        for _ in range(2):
            graph.replay()
            seen.append(dropped.cpu())
        self.assertFalse(torch.equal(*seen))

    def test_copy_types_and_gaps_between_devices(self):
        source = torch.arange(12.0, device="cuda:0").view(3, 4).t()
        target = torch.empty(4, 3, device="cuda:1", dtype=torch.half)
        target.copy_(source)
        self.assertTrue(torch.equal(target.float().cpu(), source.cpu()))

    def test_keep_what_a_host_operand_was_when_they_were_called(self):
        scale = torch.tensor(2.0)
        product = torch.ones(1 << 16, device="cuda") * scale
        scale.fill_(9)
        self.assertEqual(product.unique().tolist(), [2])

    def test_that_the_host_looks_at_cannot_be_captured(self):
        tensor = _tensor().cuda()
        with self.assertRaises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
            (tensor > 0).nonzero()


def _said(program, settings=""):
    run = run_python("-c", "import torch\n" + program, COMMPOOL_EMULATOR=settings)
    return run.stdout.strip(), run.stderr


class Settings(unittest.TestCase):
    def test_run_operations_at_once(self):
        self.assertEqual(_said("print((torch.ones(2, 2, device='cuda') @ torch.ones(2, 2, device='cuda')).tolist())",
                               "kernels=now")[0], "[[2.0, 2.0], [2.0, 2.0]]")

    def test_run_no_arithmetic(self):
        self.assertEqual(_said("x = torch.zeros(4, device='cuda'); print((x + 1).shape, torch.cuda.memory_allocated())",
                               "kernels=none")[0], "torch.Size([4]) 512")

    def test_keep_a_workspace_for_each_thread_that_multiplies(self):
        self.assertEqual(_said("""
import os
os.environ["TORCH_CUBLAS_WORKSPACE_CACHE"] = "1"  # as torch before 2.15
x = torch.zeros(8, 8, device="cuda", requires_grad=True)
y = (x @ x).sum()
forward = torch.cuda.memory_allocated() >> 20
y.backward()
print(forward, torch.cuda.memory_allocated() >> 20, flush=True)
os._exit(0)  # an interpreter that ends ends the thread of backward too, which PyTorch may not survive
""")[0], "32 64", "as on an H100: backward's thread has a handle of cuBLAS of its own")

    def test_touch_no_memory_without_arithmetic(self):
        self.assertEqual(_said("""
x = torch.zeros(1 << 34, device="cuda")
positions = (torch.rand(9, device="cuda") > 0).nonzero()
print((x + 1).sum().item(), torch.ones(1000).cuda().cpu().sum().item(), positions.shape)
""", "kernels=none")[0], "0.0 0.0 torch.Size([0, 1])")

    def check_assert(self, begins, asserts, text):
        """A program that begins so and then asserts on the device gets torch's error; the emulator says the text."""
        said, errors = _said(f"""{begins}
try:
    {asserts}
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print("device-side assert" in str(error))
""")
        self.assertEqual(said, "True", errors)
        self.assertIn(f"device assert in aten::{text}", errors)

    def test_make_an_index_out_of_range_a_device_assert(self):
        self.check_assert("", 'torch.zeros(3, device="cuda")[torch.tensor([7], device="cuda")]', "index")

    def test_assert_in_the_order_of_the_stream(self):
        self.check_assert("""
holds = torch.zeros(1, dtype=torch.bool, device="cuda")
holds.fill_(True)
torch._assert_async(holds, "it is false")
holds.fill_(False)
torch.cuda.synchronize()
""", 'torch._assert_async(holds, "it is false")', "_assert_async.msg: it is false")
