"""Steps of DDP, each without another of its waits, which C++ makes: ddp_waits_ranks.py RANK WORLD STORE.

Rank 0 prints a line for each wait: the collective that then raced with what was before it, or after it.
"""

import ctypes
import re
import sys

import torch
import torch.distributed as dist
from torch import nn

import on_emulator
from rank_processes import join
from routed import held

_WAIT = "cuStreamWaitEvent"
_WIDTH = 32
_SENT = ("aten::cat", "aten::mul.out")  # what fills the buffers of a broadcast, and the buckets
_RACE = re.compile(r"race: .*?: (.+?) of stream .*?; and (.+?) of stream ")


def model(device):
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.GELU())]
    return nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=0.005)


def told(report):
    collective, other = sorted(_RACE.search(report).groups(), key=lambda name: not name.startswith("nccl"))
    return f"{'before' if other in _SENT else 'after'} {collective}"


def main():
    rank, _, device = join(sys.argv)
    driver = ctypes.CDLL("libcuda.so.1")
    replica, batch = model(device), torch.randn(8, _WIDTH, device=device)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.01)

    def step():
        replica(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def held_step():
        # Nothing ends meanwhile: PyTorch leaves out the wait for a collective that it has seen to end.
        with held(torch.cuda.current_stream()):
            step()

    for _ in range(3):  # the buckets are made anew after the first
        step()
    before = on_emulator.calls(_WAIT)
    held_step()
    waits = on_emulator.calls(_WAIT) - before
    for number in range(waits):
        dist.barrier()
        torch.cuda.synchronize()
        driver.commpoolEmulatorInjectFault(_WAIT.encode(), number, 1, 0)
        held_step()
        step()
        driver.commpoolEmulatorClearFaults()
        torch.cuda.synchronize()
        raced = {told(report) for report in on_emulator.reports()}
        if rank == 0:
            print(*sorted(raced) or ["nothing"], sep=", ", flush=True)
    dist.destroy_process_group()


main()
