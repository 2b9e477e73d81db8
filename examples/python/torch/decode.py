"""Decoding with tensor parallelism in a CUDA graph: torchrun --nproc-per-node 2 decode.py [--record FILE] [--tiny]

A small model of Llama's kind makes the same tokens plainly and with the tensors of its all-reduces in windows. Each
rank has some heads of each attention and a part of each MLP: what leads into them is split by columns, what leads out
of them by rows, so the ranks' outputs are summed. `--tiny` is for the emulator, where the CPU computes.
"""

import contextlib
import dataclasses
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional

import commpool.torch as commpool
import recorded

TOKENS = 50


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int = 4096
    layers: int = 16
    inner: int = 11008
    heads: int = 32
    length: int = 512  # of the cache
    words: int = 8192


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


class Attention(torch.nn.Module):
    """Of this rank's heads, over a cache of what the tokens before had as keys and values."""

    def __init__(self, shape, ranks):
        super().__init__()
        part, self.heads = shape.width // ranks, shape.heads // ranks
        self.queries, self.keys, self.values = (linear(shape.width, part) for _ in range(3))
        self.out = linear(part, shape.width)
        for cache in ("cached_keys", "cached_values"):
            self.register_buffer(cache, torch.zeros(1, self.heads, shape.length, shape.width // shape.heads))
        self.register_buffer("places", torch.arange(shape.length))

    def forward(self, x, position, windows):
        queries, keys, values = (of(x).view(1, self.heads, 1, -1) for of in (self.queries, self.keys, self.values))
        self.cached_keys.index_copy_(2, position, keys)
        self.cached_values.index_copy_(2, position, values)
        attended = functional.scaled_dot_product_attention(queries, self.cached_keys, self.cached_values,
                                                           attn_mask=(self.places <= position).view(1, 1, 1, -1))
        with windows:  # what is made here lies in a window
            return self.out(attended.flatten(1))


class Mlp(torch.nn.Module):
    """This rank's part of a gated one."""

    def __init__(self, shape, ranks):
        super().__init__()
        self.gate, self.up = (linear(shape.width, shape.inner // ranks) for _ in range(2))
        self.down = linear(shape.inner // ranks, shape.width)

    def forward(self, x, _position, windows):
        inner = functional.silu(self.gate(x)) * self.up(x)
        with windows:
            return self.down(inner)


class Layer(torch.nn.Module):
    def __init__(self, shape, ranks):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(shape.width) for _ in range(2))
        self.parts = torch.nn.ModuleList([Attention(shape, ranks), Mlp(shape, ranks)])

    def forward(self, x, position, windows):
        for norm, part in zip(self.norms, self.parts):
            out = part(norm(x), position, windows)
            dist.all_reduce(out)
            x = x + out
        return x


class Model(torch.nn.Module):
    def __init__(self, shape, ranks):
        super().__init__()
        self.embedding = torch.nn.Embedding(shape.words, shape.width)
        self.layers = torch.nn.ModuleList(Layer(shape, ranks) for _ in range(shape.layers))
        self.norm, self.head = torch.nn.RMSNorm(shape.width), linear(shape.width, shape.words)
        self.register_buffer("token", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def restart(self):
        self.token.zero_()
        self.position.zero_()

    def through_layers(self, x, windows):
        for layer in self.layers:
            x = layer(x, self.position, windows)
        return x

    def forward(self, windows):
        """The likeliest next token, which is the next call's input."""
        x = self.through_layers(self.embedding(self.token), windows)
        self.token.copy_(self.head(self.norm(x)).argmax(-1))
        self.position.add_(1)
        return self.token


def made(device, tiny):
    """The model: parts differ by rank, what all ranks have is rank 0's."""
    shape = Shape(width=2048, layers=2, inner=512, heads=16, length=64, words=256) if tiny else Shape()
    torch.manual_seed(1 + dist.get_rank())
    with torch.device(device):
        model = Model(shape, dist.get_world_size()).to(torch.bfloat16)
    for shared in (model.embedding.weight, model.head.weight):
        dist.broadcast(shared, 0)
    return model


def decode(model, windows):
    """The tokens, and seconds for each, from a graph."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        model(windows)  # what libraries allocate once is not the graph's
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        result = model(windows)
    model.restart()
    tokens = []
    for _ in range(TOKENS):
        graph.replay()
        tokens.append(result[0].item())
    model.restart()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(TOKENS):
        graph.replay()
    torch.cuda.synchronize()
    return tokens, (time.perf_counter() - begin) / TOKENS


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    with torch.no_grad():
        model = made(device, "--tiny" in sys.argv)
        (tokens, plain), held = recorded.measured(lambda: decode(model, contextlib.nullcontext()))
        pool = commpool.Pool("outputs", symmetric_across=dist.group.WORLD, reserve="16MiB")
        windows = commpool.tp(pool, sizes=("4KiB", "1MiB"))  # without sizes: those that gain, measured
        (ours, in_windows), held_too = recorded.measured(lambda: decode(model, windows), pool)
    if dist.get_rank() == 0:
        print(f"{sum(one == other for one, other in zip(tokens, ours))} of {TOKENS} tokens are the same")
        print(f"a token takes {1e6 * plain:.0f} us, and {1e6 * in_windows:.0f} us in windows")
    recorded.record(plain={"us": 1e6 * plain, **held}, windows={"us": 1e6 * in_windows, **held_too})
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
