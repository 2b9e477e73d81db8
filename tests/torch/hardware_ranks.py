"""Symmetric pools over a process group on 2 GPUs or more: facts, and all-reduces in graphs beside torch's own windows.

usage: hardware_ranks.py [--record FILE] [--tiny]
  --tiny  tries it on the emulator, of which only the facts are meant
"""

import statistics
import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import everywhere, start_ranks, tiny
from hardware_measure import in_turn, ratio, record, report
from hardware_models import Scales

SIZES = {"8 KiB": 8 << 10, "32 KiB": 32 << 10, "128 KiB": 128 << 10, "1 MiB": 1 << 20, "4 MiB": 4 << 20,
         "64 MiB": 64 << 20}
ROUNDS, REPLAYS, IN_A_GRAPH = (2, 2, 2) if tiny() else (80, 20, 10)
SECONDS = 180


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def facts(group, device):
    """Gradients of a backward() lie in windows at equal offsets, their sum is right, and the pool closes."""
    pool = commpool.Pool("facts", symmetric_across=group, reserve="64MiB")
    torch.manual_seed(5)
    if tiny():
        net = Scales(layers=4, width=4096).to(device)
        x = net.batch(0) * (1 + dist.get_rank())
    else:
        net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).to(device)
        x = torch.randn(32, 256, device=device) * (1 + dist.get_rank())

    def loss_of(x):
        return net.loss(x) if tiny() else net(x).square().mean()

    loss_of(x).backward()  # cuBLAS's workspaces are made outside of the scope
    expected = [parameter.grad.clone() for parameter in net.parameters()]
    for of_plain in expected:
        dist.all_reduce(of_plain)
    net.zero_grad(set_to_none=True)
    loss = loss_of(x)
    with commpool.use_pool(pool):
        loss.backward()
    offsets = []
    for parameter, of_plain in zip(net.parameters(), expected):
        window = pool.window_of(parameter.grad, group)
        check(window.handle != 0, "no window")
        offsets.append(window.offset)
        dist.all_reduce(parameter.grad)
        torch.testing.assert_close(parameter.grad.cpu(), of_plain.cpu())
    check(all(other == offsets for other in everywhere(offsets)), "offsets differ")
    pool.verify()
    del window, of_plain
    net.zero_grad(set_to_none=True)
    loss = None
    torch.cuda.synchronize()
    pool.reclaim()
    pool.close()
    pool.destroy()
    if dist.get_rank() == 0:
        print("facts: gradients of backward in windows at equal offsets, right sums, closed", flush=True)


def graph_of(tensor):
    """A graph of all-reduces of the tensor."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(IN_A_GRAPH):
            dist.all_reduce(tensor)
    return graph


def microseconds(graph):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / REPLAYS / IN_A_GRAPH


def all_reduces(group, device):
    backend = group._get_backend(device)
    theirs = torch.cuda.MemPool(backend.mem_allocator)
    most = max(SIZES.values())
    with torch.cuda.use_mem_pool(theirs):
        of_torch = torch.zeros(most, dtype=torch.uint8, device=device)
    backend.register_mem_pool(theirs, symm=True)
    pool = commpool.Pool("windows", symmetric_across=group, reserve=most)
    with commpool.use_pool(pool):
        of_pool = torch.zeros(most, dtype=torch.uint8, device=device)
    plain = torch.zeros(most, dtype=torch.uint8, device=device)
    results = {}
    for name, nbytes in SIZES.items():
        graphs = {who: graph_of(of_whom[:nbytes].view(torch.float32)) for who, of_whom in
                  [("plain", plain), ("ours", of_pool), ("register_mem_pool", of_torch)]}
        contenders = {who: (lambda graph=graph: microseconds(graph)) for who, graph in graphs.items()}
        in_turn(contenders, 2)
        times = in_turn(contenders, ROUNDS)
        if dist.get_rank() == 0:
            medians = {who: statistics.median(of) for who, of in times.items()}
            print(f"{name}: " + ", ".join(f"{who} {of:.1f} us" for who, of in medians.items()), flush=True)
            results[name] = {"us": medians, **report(f"all-reduce {name}: ours / register_mem_pool(symm=True)",
                                                     ratio(times, "ours", "register_mem_pool"), 1.01)}
        del graphs, contenders
        torch.cuda.synchronize()
    backend.deregister_mem_pool(theirs)
    del of_pool
    pool.reclaim()
    pool.close()
    return results


def rank(device):
    group = dist.group.WORLD
    facts(group, device)
    results = all_reduces(group, device)
    if dist.get_rank() == 0:
        record("tests/torch/hardware_ranks.py", results)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, SECONDS))
