"""Decoding with tensor parallelism in CUDA graphs: all-reduces of windows beside plain ones and those of a registered
MemPool, alone and in a Llama of 1B, which makes one token at a time and reduces 4 KiB after each attention and MLP.

usage: hardware_decode.py [--record FILE] [--tiny]
"""

import itertools
import sys

import torch
import torch.distributed as dist
from torch.nn import functional

import commpool.torch as commpool

from hardware_group import advice, compare, end, everywhere, graph_of, nccl_kernels, start_ranks, tiny
from hardware_llama import Decoding
from hardware_measure import record

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


def outputs_in(pool, number, width, device):
    """A way to make row-parallel layers' outputs: in tensors of torch's MemPool, one for each layer in turn."""
    with torch.cuda.use_mem_pool(pool):
        outputs = itertools.cycle([torch.zeros(1, width, device=device, dtype=torch.bfloat16) for _ in range(number)])

    def way(weight, x):
        return torch.mm(x.view(1, -1), weight.t(), out=next(outputs)).view(1, 1, width)

    return way


def decoding(windows, device):
    """A token through the model."""
    backend = dist.group.WORLD._get_backend(device)
    theirs = torch.cuda.MemPool(backend.mem_allocator)

    def in_windows(weight, x):
        with windows:
            return functional.linear(x, weight)

    with torch.no_grad():
        model = Decoding(device)
        width = model.model.config.hidden_size
        ways = {"plain": lambda weight, x: functional.linear(x, weight), "windows": in_windows,
                "register_mem_pool": outputs_in(theirs, len(model.rows), width, device)}
        backend.register_mem_pool(theirs, symm=True)
        graphs = {who: graph_of(lambda way=way: model(way)) for who, way in ways.items()}
    found = compare("decoding a token", {who: graph.replay for who, (graph, _) in graphs.items()},
                    [("windows", "plain", 1.0), ("windows", "register_mem_pool", 1.01)], 5 if tiny() else ROUNDS,
                    1 if tiny() else REPLAYS)
    found["tokens_a_second"] = {who: round(1e3 / ms, 1) for who, ms in found["step_ms"].items()}
    outputs = {who: result.float().cpu().tolist() for who, (_, result) in graphs.items()}
    apart = {who: max(abs(one - other) for one, other in zip(outputs["plain"], of)) for who, of in outputs.items()}
    largest = max(map(abs, outputs["plain"]))
    equal = len({tuple(of) for of in everywhere(outputs["windows"][:64])}) == 1
    kernels = {who: nccl_kernels(graph.replay) for who, (graph, _) in graphs.items()}
    if dist.get_rank() == 0:
        print(f"tokens a second: {found['tokens_a_second']}; logits apart by {apart} of {largest:.3g}, ranks equal: "
              f"{equal}; NCCL's kernels: {kernels}", flush=True)
    torch.cuda.synchronize()
    del graphs
    backend.deregister_mem_pool(theirs)
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
