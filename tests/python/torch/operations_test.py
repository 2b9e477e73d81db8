"""PyTorch's operations on the emulator: the values of its CPU kernels, in the order of streams and at replays."""

import copy
import os
import subprocess
import sys
import unittest

import torch
from torch import nn
from torch.nn import functional

from on_emulator import EmulatorCase


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
    "greatest common divisor": lambda t: torch.gcd((t * 10).long(), (t * 7).long()),
}


class Operations(EmulatorCase):
    def test_have_the_values_of_the_cpu(self):
        for name, operation in _SAME.items():
            with self.subTest(name):
                self.assertTrue(torch.equal(operation(_tensor().cuda()).cpu(), operation(_tensor())))

    def test_train_layers_as_the_cpu_does(self):
        convolutions = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
                                     nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 3))
        encoder = nn.TransformerEncoderLayer(32, 4, dropout=0.0)
        for layer, shape in ((convolutions, (2, 3, 16, 16)), (encoder, (4, 2, 32))):
            batch = torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape)
            other = copy.deepcopy(layer).cuda()
            (layer(batch) ** 2).sum().backward()
            (other(batch.cuda()) ** 2).sum().backward()
            for name, weight in layer.named_parameters():
                self.assertTrue(torch.equal(other.get_parameter(name).grad.cpu(), weight.grad), name)

    def test_run_recurrent_cells(self):
        for layer in (nn.LSTM(8, 16, 2), nn.GRU(8, 16)):
            batch = torch.linspace(-1, 1, 120).view(5, 3, 8)
            other = copy.deepcopy(layer).cuda()
            layer(batch)[0].sum().backward()
            other(batch.cuda())[0].sum().backward()
            for name, weight in layer.named_parameters():
                self.assertTrue(torch.allclose(other.get_parameter(name).grad.cpu(), weight.grad, atol=1e-5), name)

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
        with self.assertRaises(RuntimeError):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                (tensor > 0).nonzero()


def _said(program, **settings):
    setting = ",".join(f"{key}={value}" for key, value in settings.items())
    run = subprocess.run([sys.executable, "-B", "-c", "import torch\n" + program], capture_output=True, text=True,
                         timeout=280, env={**os.environ, "COMMPOOL_EMULATOR": setting}, check=False)
    return run.stdout.strip(), run.stderr


class Settings(unittest.TestCase):
    def test_run_operations_at_once(self):
        self.assertEqual(_said("print((torch.ones(2, 2, device='cuda') @ torch.ones(2, 2, device='cuda')).tolist())",
                               kernels="now")[0], "[[2.0, 2.0], [2.0, 2.0]]")

    def test_run_no_arithmetic(self):
        self.assertEqual(_said("x = torch.zeros(4, device='cuda'); print((x + 1).shape, torch.cuda.memory_allocated())",
                               kernels="none")[0], "torch.Size([4]) 512")

    def test_make_an_index_out_of_range_a_device_assert(self):
        said, errors = _said("""
try:
    torch.zeros(3, device="cuda")[torch.tensor([7], device="cuda")]
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print("device-side assert" in str(error))
""")
        self.assertEqual(said, "True", errors)
        self.assertIn("device assert in aten::index", errors)


if __name__ == "__main__":
    unittest.main()
