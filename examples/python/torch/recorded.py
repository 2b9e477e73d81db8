"""Steps that examples time, and what they write with `--record FILE`: times, held memory, and which registrations
NCCL's own log says it used.

Imported before NCCL's first call, which reads where to log. Without the option nothing is logged.
"""

import gc
import json
import os
import re
import sys
import time

import torch
import torch.distributed as dist

MIB = 1 << 20
FILE = sys.argv[sys.argv.index("--record") + 1] if "--record" in sys.argv else None
# Memory without a name: it goes with the process, whatever ends that.
_LOG = os.memfd_create("nccl log") if FILE else None
if FILE:
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="COLL,TUNING,REG", NCCL_DEBUG_FILE=f"/proc/self/fd/{_LOG}")

_CALL = re.compile(r"NCCL INFO (\w+): opCount")
_KERNEL = re.compile(r"NCCL INFO (\w+)(?: \[(Symmetric|Copy Engine)\])?: \d+ Bytes -> "
                     r"(?:Kernel (\S+)|Algo (\S+) proto (\S+)|cudaMemcpy)")
_LOCAL = ("- IPC register buffer", "- IPC reuse buffer", "successfully registered NVLS", "reuse registered NVLS",
          "successfully registered CollNet")
_COPIES = "copy engines"


def collectives_of(lines):
    """By collective: how often it was called, by which kernels it ran, and how often with which registration.

    Of rank 0's log: other ranks write no kernels. Copy engines need windows; NCCL before 2.29 logs the call alone for
    them, so they are what it ran no kernel for.
    """
    found, local = {}, False
    for line in lines:
        if call := _CALL.search(line):
            _of(found, call[1])["calls"] += 1
        elif kernel := _KERNEL.search(line):
            name = kernel[3] or (f"{kernel[4]} {kernel[5]}" if kernel[4] else _COPIES)
            _add(_of(found, kernel[1])["kernels"], name, 1)
        local = local or any(text in line for text in _LOCAL)
    for of in found.values():
        if of["calls"] > sum(of["kernels"].values()):
            _add(of["kernels"], _COPIES, of["calls"] - sum(of["kernels"].values()))
        for name, count in of["kernels"].items():
            ring = " " in name and name != _COPIES  # an algorithm and its protocol
            of_ring = "local" if local and "SIMPLE" in name else "none"
            _add(of["registrations"], of_ring if ring else "window", count)
    return found


def _of(found, collective):
    return found.setdefault(collective, {"calls": 0, "kernels": {}, "registrations": {}})


def _add(counts, name, count):
    counts[name] = counts.get(name, 0) + count


def trained(net, batch, warm, steps):
    """Seconds a step after the first ones, and the losses of all."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    losses = []
    for step in range(warm + steps):
        if step == warm:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        loss = net(batch).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps, [loss.item() for loss in losses]


def measured(work, pool=None):
    """What the work returns; the most memory that torch and the pool held meanwhile, and what NCCL ran."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = os.fstat(_LOG).st_size if FILE else 0
    result = work()
    torch.cuda.synchronize()
    of_pool = pool.stats().reserved_bytes.peak if pool is not None else 0
    found = {"torch_mib": (torch.cuda.max_memory_reserved() - of_pool) / MIB, "pool_mib": of_pool / MIB}
    if FILE:
        log = os.pread(_LOG, os.fstat(_LOG).st_size - before, before).decode(errors="replace")
        found["collectives"] = collectives_of(log.splitlines())
    return result, found


def record(**results):
    """Appends a line of JSON, on rank 0."""
    if FILE and dist.get_rank() == 0:
        with open(FILE, "a", encoding="utf-8") as file:
            json.dump({"ranks": dist.get_world_size(), **results}, file)
            file.write("\n")
