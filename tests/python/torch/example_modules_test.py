"""The modules that the PyTorch examples import: the decoding model is right on the CPU, and NCCL's log is
understood."""

import contextlib
import functools
import sys
import threading
import unittest
import unittest.mock

import torch

import routed  # noqa: F401  which finds the library
from on_emulator import on_threads

sys.path.append("examples/python/torch")
import decode  # noqa: E402
import recorded  # noqa: E402

_SHAPE = decode.Shape(width=32, layers=2, inner=48, heads=4, length=8, words=50)
_COLUMNS = ("queries.weight", "keys.weight", "values.weight", "gate.weight", "up.weight")
_ROWS = ("out.weight", "down.weight")


def model_of(ranks, seed=0):
    torch.manual_seed(seed)
    return decode.Model(_SHAPE, ranks).double().requires_grad_(False)


def part_of(whole, rank, ranks):
    """One rank's part of a model: it splits matrices before attention and MLPs by columns, those after them by rows."""
    part = model_of(ranks)
    for name, weight in whole.named_parameters():
        dimension = 0 if name.endswith(_COLUMNS) else 1 if name.endswith(_ROWS) else None
        mine = weight if dimension is None else weight.chunk(ranks, dimension)[rank]
        part.get_parameter(name).copy_(mine)
    return part


def sums_of(ranks):
    """An all-reduce among threads."""
    parts, added = {}, threading.Barrier(ranks)

    def all_reduce(tensor):
        parts[threading.get_ident()] = tensor
        added.wait(60)
        total = sum(parts.values())
        added.wait(60)
        tensor.copy_(total)
        added.wait(60)

    return all_reduce


class Decoding(unittest.TestCase):
    def tokens_of(self, model, number=6):
        return [model(contextlib.nullcontext()).item() for _ in range(number)]

    def test_in_parts_makes_the_tokens_of_the_whole_model(self):
        whole = model_of(1)
        parts = [part_of(whole, rank, 2) for rank in range(2)]
        with unittest.mock.patch.object(decode.dist, "all_reduce", sums_of(2)):
            found = on_threads(*(functools.partial(self.tokens_of, part) for part in parts))
        with unittest.mock.patch.object(decode.dist, "all_reduce"):
            expected = self.tokens_of(whole)
        self.assertGreater(len(set(expected)), 1)
        self.assertEqual(found, [expected] * 2)

    def test_from_the_cache_is_attention_over_all_tokens_so_far(self):
        torch.manual_seed(1)
        attention = decode.Attention(_SHAPE, 1).double().requires_grad_(False)
        inputs = torch.randn(5, _SHAPE.width, dtype=torch.float64)
        cached = [attention(x.view(1, -1), torch.tensor([place]), contextlib.nullcontext())
                  for place, x in enumerate(inputs)]
        queries, keys, values = (of(inputs).view(5, _SHAPE.heads, -1).transpose(0, 1)
                                 for of in (attention.queries, attention.keys, attention.values))
        whole = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        torch.testing.assert_close(torch.cat(cached), attention.out(whole.transpose(0, 1).flatten(1)))

    def test_starts_anew(self):
        model = model_of(1)
        with unittest.mock.patch.object(decode.dist, "all_reduce"):
            first = self.tokens_of(model)
            model.restart()
            self.assertEqual(self.tokens_of(model), first)


def call(collective):
    return (f"host:1:2 [0] NCCL INFO {collective}: opCount 5 sendbuff 0x7f recvbuff 0x7f count 4096 datatype 9 op 0 "
            "root 0 comm 0x55 [nranks=2] stream 0x56")


_RING = "host:1:2 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"
_SIMPLE = "host:1:2 [0] NCCL INFO AllGather: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}"
_SYMMETRIC = ("host:1:2 [0] NCCL INFO AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 3 "
              "nthreads 512 nWorks 1")
_REUSED = "host:1:2 [1] NCCL INFO rank 1 - IPC reuse buffer 0x7f71 size 2097152 (baseAddr 0x7f70 size 9) to peer 0"
_COPIED = "host:1:2 [0] NCCL INFO AllGather [Copy Engine]: 4194304 Bytes -> cudaMemcpy"


class Log(unittest.TestCase):
    """The lines are those of NCCL 2.28.9; those about copy engines are of 2.30.7."""

    def check(self, lines, collective, kernels, registrations):
        found = recorded.collectives_of(lines)[collective]
        self.assertEqual((found["kernels"], found["registrations"]), (kernels, registrations))

    def test_tells_windows_from_rings(self):
        lines = [call("AllReduce"), _RING, call("AllReduce"), _SYMMETRIC, call("AllReduce"), _SYMMETRIC]
        self.check(lines, "AllReduce", {"RING LL": 1, "AllReduce_AGxLL_R": 2}, {"none": 1, "window": 2})

    def test_tells_local_registrations_of_rings_that_use_them(self):
        self.check([call("AllGather"), _SIMPLE, _REUSED], "AllGather", {"RING SIMPLE": 1}, {"local": 1})
        self.check([call("AllGather"), _SIMPLE], "AllGather", {"RING SIMPLE": 1}, {"none": 1})
        self.check([call("AllReduce"), _RING, _REUSED], "AllReduce", {"RING LL": 1}, {"none": 1})

    def test_counts_what_ran_no_kernel_as_copied_in_windows(self):
        for lines in ([call("AllGather")] * 2, [call("AllGather"), _COPIED] * 2):
            self.check(lines, "AllGather", {"copy engines": 2}, {"window": 2})
