"""Decoding with tensor parallelism in CUDA graphs: all-reduces of windows beside plain ones, alone and in a model.

The model is that of examples/python/torch/decode.py: 16 layers of width 4096 in bfloat16, one token at a time, an
all-reduce of 8 KiB after each attention and each MLP. usage: hardware_decode.py [--record FILE] [--tiny]
"""

import contextlib
import pathlib
import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import advice, compare, end, everywhere, graph_of, nccl_kernels, start_ranks, tiny
from hardware_measure import record

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "python" / "torch"))
import decode  # noqa: E402

SIZES = {"8 KiB": 8 << 10, "32 KiB": 32 << 10, "128 KiB": 128 << 10, "1 MiB": 1 << 20}
GOALS = {"8 KiB": 0.667, "32 KiB": 1.0, "128 KiB": 1.0, "1 MiB": 1.0}
ROUNDS, REPLAYS, IN_A_GRAPH = 20, 100, 10


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


def decoding(windows, device):
    """A token through the layers, with the cache full."""
    with torch.no_grad():
        model = decode.made(device, tiny())
        if not tiny():
            model.position.fill_(decode.Shape().length - 1)
        x = torch.ones_like(model.start) if tiny() else torch.ones(1, decode.Shape().width, device=device,
                                                                   dtype=torch.bfloat16)
        ways = {"plain": contextlib.nullcontext(), "windows": windows}
        graphs = {who: graph_of(lambda way=way: model.through_layers(x, way)) for who, way in ways.items()}
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
               "all-reduces": all_reduces(pool, windows, device), "decoding": decoding(windows, device)}
    pool.verify()
    end(pool)
    if dist.get_rank() == 0:
        record("tests/torch/hardware_decode.py", results)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 120))
