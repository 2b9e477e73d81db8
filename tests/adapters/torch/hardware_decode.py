"""Decoding with tensor parallelism in CUDA graphs: all-reduces of windows beside plain ones, alone and in a model.

A model of 16 layers of width 4096 in bfloat16, one token at a time: an all-reduce of 8 KiB after each attention and
each MLP. usage: hardware_decode.py [--record FILE] [--tiny]
"""

import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import advice, compare, end, everywhere, graph_of, nccl_kernels, start_ranks, tiny
from hardware_measure import record

WIDTH, LAYERS, INNER, HEADS, LENGTH = 4096, 16, 11008, 32, 512
SIZES = {"8 KiB": 8 << 10, "32 KiB": 32 << 10, "128 KiB": 128 << 10, "1 MiB": 1 << 20}
GOALS = {"8 KiB": 0.667, "32 KiB": 1.0, "128 KiB": 1.0, "1 MiB": 1.0}
ROUNDS, REPLAYS, IN_A_GRAPH = 20, 100, 10


class Nowhere:
    """A scope that catches nothing."""

    def __enter__(self):
        return None

    def __exit__(self, *_error):
        return None


class Attention(torch.nn.Module):
    """Of this rank's heads, over a cache of fixed length."""

    def __init__(self, ranks):
        super().__init__()
        self.heads = HEADS // ranks
        part = WIDTH // ranks
        self.queries = torch.nn.Linear(WIDTH, part, bias=False)
        self.out = torch.nn.Linear(part, WIDTH, bias=False)
        self.register_buffer("keys", torch.randn(1, self.heads, LENGTH, WIDTH // HEADS))
        self.register_buffer("values", torch.randn(1, self.heads, LENGTH, WIDTH // HEADS))

    def forward(self, x, windows):
        queries = self.queries(x).view(1, self.heads, 1, -1)
        attended = torch.nn.functional.scaled_dot_product_attention(queries, self.keys, self.values).flatten(1)
        with windows:
            return self.out(attended)


class Mlp(torch.nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, INNER // ranks, bias=False)
        self.up = torch.nn.Linear(WIDTH, INNER // ranks, bias=False)
        self.down = torch.nn.Linear(INNER // ranks, WIDTH, bias=False)

    def forward(self, x, windows):
        inner = torch.nn.functional.silu(self.gate(x)) * self.up(x)
        with windows:
            return self.down(inner)


class TinyPart(torch.nn.Module):
    """Of operations that the emulator has."""

    def __init__(self, _ranks):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH // 2,), 0.5))

    def forward(self, x, windows):
        with windows:
            return x * self.weight


class Model(torch.nn.Module):
    """Two all-reduces a layer, each of what a row-parallel product makes."""

    def __init__(self, ranks):
        super().__init__()
        kinds = [TinyPart, TinyPart] if tiny() else [Attention, Mlp]
        self.parts = torch.nn.ModuleList(kind(ranks) for _ in range(2 if tiny() else LAYERS) for kind in kinds)

    def forward(self, x, windows):
        for part in self.parts:
            out = part(x, windows)
            dist.all_reduce(out)
            x = x + out * 0.1
        return x


def all_reduces(pool, windows, device):
    """Bare ones by size."""
    found = {}
    for name, nbytes in SIZES.items():
        plain = torch.zeros(nbytes // 4, device=device)
        with commpool.use_pool(pool):
            in_window = torch.zeros(nbytes // 4, device=device)
        graphs = {}
        for who, tensor in (("plain", plain), ("windows", in_window)):

            def work(tensor=tensor):
                for _ in range(IN_A_GRAPH):
                    dist.all_reduce(tensor)

            graphs[who] = graph_of(work)[0].replay
        what = f"{IN_A_GRAPH} all-reduces of {name}" + ("" if windows.sizes and nbytes <= windows.sizes[1] else
                                                        ", not advised")
        found[name] = compare(what, graphs, [("windows", "plain", GOALS[name])], 5 if tiny() else ROUNDS,
                              1 if tiny() else REPLAYS)
        del graphs, in_window
    return found


def decoding(pool, windows, device):
    torch.manual_seed(1 + dist.get_rank())
    ranks = dist.get_world_size()
    with torch.device("cpu" if tiny() else device), torch.no_grad():
        model = Model(ranks)
        model = model.to(device) if tiny() else model.to(device, torch.bfloat16)
    x = torch.ones(1, WIDTH, device=device, dtype=torch.bfloat16)
    x = torch.ones(WIDTH // 2, device=device) if tiny() else x
    ways = {"plain": Nowhere(), "windows": windows}
    with torch.no_grad():
        graphs = {who: graph_of(lambda way=way: model(x, way)) for who, way in ways.items()}
    found = compare("decoding a token", {who: graph.replay for who, (graph, _) in graphs.items()},
                    [("windows", "plain", 1.0)], 5 if tiny() else ROUNDS, 1 if tiny() else REPLAYS)
    outputs = {who: result.float().cpu().flatten().tolist() for who, (_, result) in graphs.items()}
    apart = max(abs(one - other) for one, other in zip(outputs["plain"], outputs["windows"]))
    largest = max(map(abs, outputs["plain"]))
    equal = len({tuple(of) for of in everywhere(outputs["windows"][:64])}) == 1
    kernels = {who: nccl_kernels(graph.replay) for who, (graph, _) in graphs.items()}
    if dist.get_rank() == 0:
        print(f"outputs apart by {apart:.3g} of {largest:.3g}, ranks equal: {equal}; NCCL's kernels: {kernels}",
              flush=True)
    return {**found, "apart": apart, "largest": largest, "ranks_equal": equal, "kernels_us": kernels}


def rank(device):
    pool = commpool.Pool("decode", symmetric_across=dist.group.WORLD, reserve="64MiB")
    found = advice()
    windows = commpool.tp(pool)
    if dist.get_rank() == 0:
        print(found, flush=True)
    results = {"ranks": dist.get_world_size(), "advice": [list(row) for row in found.rows], "sizes": windows.sizes,
               "all-reduces": all_reduces(pool, windows, device), "decoding": decoding(pool, windows, device)}
    pool.verify()
    end(pool)
    if dist.get_rank() == 0:
        record("tests/adapters/torch/hardware_decode.py", results)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 120))
