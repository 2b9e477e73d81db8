"""FSDP2 with and without windows: torchrun --nproc-per-node 2 train_sharded.py [--record FILE]

The same steps are done with torch's own all-gathers and with those of windows, by copy engines: equal losses, and their
times.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import commpool.torch as commpool

STEPS = 10


class Scale(torch.nn.Module):
    """Stands for a layer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1 << 16,), 1.5))

    def forward(self, x):
        return x * self.weight


def sharded(device):
    model = torch.nn.Sequential(*[Scale() for _ in range(4)]).to(device)
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def train(net, device):
    """Losses of steps, and seconds a step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, foreach=False)
    batch, losses = torch.full((1 << 16,), 1.0 + dist.get_rank(), device=device), []
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = net(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], (time.perf_counter() - begin) / STEPS


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    pool = commpool.Pool("parameters", symmetric_across=dist.group.WORLD)  # fsdp reserves what it needs
    stock, net = sharded(device), commpool.fsdp(sharded(device), pool)
    ring = commpool.all_gather_ring(net)
    (losses, plain), (ours, in_windows) = train(stock, device), train(net, device)
    if dist.get_rank() == 0:
        print(f"equal losses: {losses == ours}; {ring.taken} all-gathers in {ring.buffers} windows of "
              f"{ring.nbytes >> 10} KiB")
        print(f"a step takes {1e3 * plain:.1f} ms, and {1e3 * in_windows:.1f} ms with gathers in windows")
        if "--record" in sys.argv:
            with open(sys.argv[sys.argv.index("--record") + 1], "a", encoding="utf-8") as file:
                json.dump({"ranks": dist.get_world_size(), "plain_ms": 1e3 * plain,
                           "windows_ms": 1e3 * in_windows}, file)
                file.write("\n")
    commpool.fsdp_release(net)
    torch.cuda.synchronize()
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
