"""FSDP2 with and without windows: torchrun --nproc-per-node 2 train_sharded.py [--record FILE] [--tiny]

The same steps are done with torch's own all-gathers and with those of windows, by copy engines. `--tiny` is for the
emulator, where the CPU computes.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import commpool.torch as commpool
import recorded

TINY = "--tiny" in sys.argv
WIDTH, LAYERS, TOKENS = (256, 4, 32) if TINY else (4096, 8, 2048)
WARM, STEPS = 3, 10


def sharded(device):
    torch.manual_seed(0)  # the same on all ranks
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers).to(device, torch.bfloat16)
    for part in model:
        fully_shard(part)
    return fully_shard(model)


def train(net, device):
    """Seconds a step after the first ones, and losses."""
    torch.manual_seed(1 + dist.get_rank())
    return recorded.trained(net, torch.randn(TOKENS, WIDTH, device=device, dtype=torch.bfloat16), WARM, STEPS)


def in_windows(pool, device):
    """The same with all-gathers in windows, and what was gathered so."""
    net = commpool.fsdp(sharded(device), pool)
    seconds, losses = train(net, device)
    ring = commpool.all_gather_ring(net)
    said = f"{ring.taken} all-gathers in {ring.buffers} windows of {ring.nbytes >> 10} KiB"
    commpool.fsdp_release(net)
    return seconds, losses, said


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    (plain, losses), held = recorded.measured(lambda: train(sharded(device), device))
    pool = commpool.Pool("parameters", symmetric_across=dist.group.WORLD)  # fsdp reserves what it needs
    (ours, same, said), held_too = recorded.measured(lambda: in_windows(pool, device), pool)
    if dist.get_rank() == 0:
        print(f"losses apart by at most {max(abs(one - other) for one, other in zip(losses, same)):g}; {said}")
        print(f"a step takes {1e3 * plain:.2f} ms, and {1e3 * ours:.2f} ms with gathers in windows")
    recorded.record(plain={"ms": 1e3 * plain, **held}, windows={"ms": 1e3 * ours, **held_too})
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
