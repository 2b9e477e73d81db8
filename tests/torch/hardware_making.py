"""What it takes to have memory in windows: a pool created and reserved, beside torch's own pool of NCCL's memory filled
and registered. Of a group in use, in turn; and over groups whose communicators have no window yet, where NCCL's set-up
of the first one is part of it.

usage: hardware_making.py [--record FILE] [--tiny]
"""

import gc
import statistics
import sys
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import everywhere, start_ranks, tiny
from hardware_measure import in_turn, ratio, record, report

MIB = 1 << 20
BYTES = (2 if tiny() else 64) * MIB
ROUNDS, NEW_GROUPS = (2, 1) if tiny() else (200, 3)
OURS, THEIRS = "commpool", "register_mem_pool"


class Clock:
    """Milliseconds of steps, which the ranks begin together: each step's, of the slowest rank."""

    def __init__(self):
        self._steps = {}
        everywhere(None)
        torch.cuda.synchronize()
        self._last = time.perf_counter()

    def step(self, name):
        now = time.perf_counter()
        self._steps[name], self._last = 1e3 * (now - self._last), now

    def slowest(self):
        ranks = everywhere({**self._steps, "all": sum(self._steps.values())})
        return {name: max(of[name] for of in ranks) for name in ranks[0]}


def of_commpool(group, _device):
    clock = Clock()
    pool = commpool.Pool("made", symmetric_across=group)
    clock.step("create")
    pool.reserve(BYTES)
    clock.step("reserve")
    found = clock.slowest()
    pool.close()
    pool.destroy()
    return found


def of_torch(group, device):
    backend = group._get_backend(device)
    clock = Clock()
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        block = torch.empty(BYTES, dtype=torch.uint8, device=device)
    clock.step("allocate")
    backend.register_mem_pool(pool, symm=True)
    clock.step("register")
    found = clock.slowest()
    backend.deregister_mem_pool(pool)
    del block
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    return found


def in_use(group, device):
    """On one communicator, in turn: the steps' medians, and the ratio of the whole."""
    steps = {OURS: [], THEIRS: []}

    def contender(name, make):
        def once():
            steps[name].append(make(group, device))
            return steps[name][-1]["all"]
        return once

    contenders = {OURS: contender(OURS, of_commpool), THEIRS: contender(THEIRS, of_torch)}
    in_turn(contenders, 2)
    for of in steps.values():
        of.clear()
    times = in_turn(contenders, ROUNDS)
    medians = {name: {step: round(statistics.median(one[step] for one in of), 3) for step in of[0]}
               for name, of in steps.items()}
    found = {"ms": medians}
    if dist.get_rank() == 0:
        print(f"{BYTES // MIB} MiB on a communicator in use, ms: {medians}", flush=True)
        found.update(report(f"making {BYTES // MIB} MiB: ours / torch's", ratio(times, OURS, THEIRS), 1.0))
    return found


def on_new_groups(device):
    """Each over groups of its own, whose communicators have done an all-reduce and have no window."""
    found = {OURS: [], THEIRS: []}
    for number in range(NEW_GROUPS):
        for name, make in (((OURS, of_commpool), (THEIRS, of_torch)) if number % 2 == 0 else
                           ((THEIRS, of_torch), (OURS, of_commpool))):
            group = dist.new_group()
            dist.all_reduce(torch.zeros(1, device=device), group=group)
            torch.cuda.synchronize()
            found[name].append({step: round(ms, 3) for step, ms in make(group, device).items()})
            dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        for name, rounds in found.items():
            print(f"{BYTES // MIB} MiB on communicators without a window, ms: {name} {rounds}", flush=True)
    return found


def rank(device):
    dist.all_reduce(torch.zeros(1, device=device))
    found = {"ranks": dist.get_world_size(), "bytes": BYTES, "new_groups": on_new_groups(device),
             "in_use": in_use(dist.group.WORLD, device)}
    if dist.get_rank() == 0:
        record("tests/torch/hardware_making.py", found)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 90))
