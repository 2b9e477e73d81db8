"""An all-reduce in one step, by a Triton kernel over the addresses of all ranks (`Pool.peers_of`), in graphs, beside
NCCL's kernel over the same pool's windows; and once more after the pool has slept.

usage: hardware_peers.py [--record FILE] [--tiny]
  --tiny  asks for the addresses alone: the emulator runs no kernels
"""

import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import compare, end, everywhere, graph_of, nccl_kernels, start_ranks, tiny
from hardware_measure import record

if not tiny():
    import triton
    import triton.language as tl

SIZES = {"8 KiB": 8 << 10, "32 KiB": 32 << 10, "128 KiB": 128 << 10}
GOALS = {"8 KiB": 0.9, "32 KiB": 1.0, "128 KiB": 1.0}
ROUNDS, REPLAYS, IN_A_GRAPH = 40, 50, 10
ELEMENTS = 512  # of a program

if not tiny():

    @triton.jit
    def one_shot(values, calls, data, data_stride, flags, flags_stride, count,
                 RANK: tl.constexpr, RANKS: tl.constexpr, ELEMENTS: tl.constexpr):
        """Sums `values` of all ranks in place.

        Each program copies its part where the others see it, tells them, waits for theirs, and adds them up. Two
        copies take turns: when a rank writes one again, all have passed the call between, and so have read it.
        """
        part = tl.program_id(0)
        call = tl.load(calls + part) + 1
        place = part * ELEMENTS + tl.arange(0, ELEMENTS)
        inside = place < count
        turn = (call & 1) * count
        own = (data + RANK * data_stride).to(tl.pointer_type(tl.float32))
        tl.store(own + turn + place, tl.load(values + place, mask=inside), mask=inside)
        tl.debug_barrier()  # the program's threads have written before one of them tells
        for other in tl.static_range(RANKS):
            there = (flags + other * flags_stride).to(tl.pointer_type(tl.int32))
            tl.atomic_xchg(there + part * RANKS + RANK, call, sem="release", scope="sys")
        here = (flags + RANK * flags_stride).to(tl.pointer_type(tl.int32))
        for other in tl.static_range(RANKS):
            # Another rank may be one call ahead.
            while tl.atomic_add(here + part * RANKS + other, 0, sem="acquire", scope="sys") < call:
                pass
        tl.debug_barrier()
        total = tl.zeros((ELEMENTS,), dtype=tl.float32)
        for other in tl.static_range(RANKS):
            theirs = (data + other * data_stride).to(tl.pointer_type(tl.float32))
            total += tl.load(theirs + turn + place, mask=inside, volatile=True)
        tl.store(values + place, total, mask=inside)
        tl.store(calls + part, call)


class OneShot:
    """All-reduces of a size, over buffers in the pool. Every rank makes it in the same order."""

    def __init__(self, pool, nbytes, device):
        self.count, self.ranks = nbytes // 4, dist.get_world_size()
        self.parts = -(-self.count // ELEMENTS)
        with commpool.use_pool(pool):
            self.data = torch.zeros(2 * self.count, device=device)
            self.flags = torch.zeros(self.parts * self.ranks, dtype=torch.int32, device=device)
        self.calls = torch.zeros(self.parts, dtype=torch.int32, device=device)
        self.of_data, self.of_flags = pool.peers_of(self.data), pool.peers_of(self.flags)
        torch.cuda.synchronize()
        dist.barrier()  # nobody sets a flag that its owner clears later

    def __call__(self, values):
        one_shot[(self.parts,)](values, self.calls, self.of_data.first, self.of_data.stride, self.of_flags.first,
                                self.of_flags.stride, self.count, dist.get_rank(), self.ranks, ELEMENTS)


def check_sums(graph, values):
    """Sums of whole numbers: they are exact."""
    values.copy_((torch.arange(values.numel(), device=values.device) % 7 + dist.get_rank()).float())
    expected = values.clone()
    dist.all_reduce(expected)
    for _ in range(IN_A_GRAPH - 1):
        expected *= dist.get_world_size()
    dist.barrier()
    graph.replay()
    torch.cuda.synchronize()
    equal = bool((values == expected).all())
    if not all(everywhere(equal)):
        raise AssertionError("the one-step all-reduce gives other sums than NCCL's")


def of_size(name, pool, device):
    plain = torch.zeros(SIZES[name] // 4, device=device)
    with commpool.use_pool(pool):
        in_window = torch.zeros_like(plain)
    summing = OneShot(pool, SIZES[name], device)
    works = {"one step": lambda: [summing(plain) for _ in range(IN_A_GRAPH)],
             "windows": lambda: [dist.all_reduce(in_window) for _ in range(IN_A_GRAPH)]}
    graphs = {who: graph_of(work)[0] for who, work in works.items()}
    check_sums(graphs["one step"], plain)
    plain.zero_()
    found = compare(f"{IN_A_GRAPH} all-reduces of {name}", {who: graph.replay for who, graph in graphs.items()},
                    [("one step", "windows", GOALS[name])], ROUNDS, REPLAYS)
    found["kernels_us"] = nccl_kernels(graphs["windows"].replay)
    return found, (summing, graphs["one step"], plain)


def check_sleep(pool, made):
    """Flags go back to where they were, for contents are kept."""
    before = [summing.of_data for summing, _, _ in made]
    pool.sleep("host", graphs="discarded")  # those with collectives over windows
    pool.wake(graphs="discarded")
    if [pool.peers_of(summing.data) for summing, _, _ in made] != before:
        raise AssertionError("the addresses of other ranks have moved")
    for _, graph, plain in made:
        check_sums(graph, plain)


def rank(device):
    pool = commpool.Pool("peers", symmetric_across=dist.group.WORLD, reserve="64MiB")
    pool.map_peers()
    if tiny():
        with commpool.use_pool(pool):
            block = torch.zeros(1024, device=device)
        addresses = pool.peers_of(block).addresses
        if len({*addresses}) != dist.get_world_size():
            raise AssertionError(f"not one address a rank: {addresses}")
        del block
        end(pool)
        return
    results, made = {"ranks": dist.get_world_size()}, []
    for name in SIZES:
        results[name], of_this_size = of_size(name, pool, device)
        made.append(of_this_size)
    del of_this_size
    check_sleep(pool, made)
    results["replayed_after_a_sleep"] = True
    if dist.get_rank() == 0:
        print("sums are exact, before and after a sleep", flush=True)
        record("tests/torch/hardware_peers.py", results)
    made.clear()
    end(pool)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 120))
