"""DistributedDataParallel with and without windows: torchrun --nproc-per-node 2 train.py [--record FILE]

The same steps are done with torch's own gradient buckets and with buckets in windows: equal losses, and their times.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool

STEPS = 10


class Scales(torch.nn.Module):
    """Stands for a model."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.full((1 << 16,), 1.5) for _ in range(4))

    def forward(self, x):
        for weight in self.weights:
            x = x * weight
        return x.sum()


def train(net, device):
    """Losses of steps, and seconds a step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, foreach=False)
    batch, losses = torch.full((1 << 16,), 1.0 + dist.get_rank(), device=device), []
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = net(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], (time.perf_counter() - begin) / STEPS


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    pool = commpool.Pool("gradients", symmetric_across=dist.group.WORLD)  # ddp reserves what it needs
    stock = torch.nn.parallel.DistributedDataParallel(Scales().to(device), device_ids=[device.index])
    net = commpool.ddp(Scales().to(device), pool, bucket="4MiB", device_ids=[device.index])
    (losses, plain), (ours, in_windows) = train(stock, device), train(net, device)
    if dist.get_rank() == 0:
        print(f"equal losses: {losses == ours}; {pool.stats().allocated_bytes.current >> 10} KiB of buckets in windows")
        print(f"a step takes {1e3 * plain:.1f} ms, and {1e3 * in_windows:.1f} ms with buckets in windows")
        if "--record" in sys.argv:
            with open(sys.argv[sys.argv.index("--record") + 1], "a", encoding="utf-8") as file:
                json.dump({"ranks": dist.get_world_size(), "plain_ms": 1e3 * plain,
                           "windows_ms": 1e3 * in_windows}, file)
                file.write("\n")
    commpool.ddp_release(net)
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
