"""DistributedDataParallel with and without windows: torchrun --nproc-per-node 2 train.py [--record FILE] [--tiny]

The same steps are done with torch's own gradient buckets and with buckets in windows. `--tiny` is for the emulator,
where the CPU computes.
"""

import os
import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool
import recorded

TINY = "--tiny" in sys.argv
WIDTH, LAYERS, TOKENS = (256, 8, 32) if TINY else (2048, 16, 2048)
WARM, STEPS = 3, 10


def model(device):
    """The same on all ranks."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    return torch.nn.Sequential(*layers).to(device, torch.bfloat16)


def train(net, device):
    """Seconds a step once buckets lie where they stay, and losses."""
    torch.manual_seed(1 + dist.get_rank())
    return recorded.trained(net, torch.randn(TOKENS, WIDTH, device=device, dtype=torch.bfloat16), WARM, STEPS)


def plainly(device):
    net = torch.nn.parallel.DistributedDataParallel(model(device), device_ids=[device.index],
                                                    gradient_as_bucket_view=True)
    return train(net, device)


def in_windows(pool, device):
    """The same, and the bytes of gradients in windows."""
    # Without bucket and blocks: by measuring. By itself NCCL gives its kernels for windows few blocks.
    net = commpool.ddp(model(device), pool, bucket="16MiB", blocks=16, device_ids=[device.index])
    seconds, losses = train(net, device)
    nbytes = pool.stats().allocated_bytes.current
    commpool.ddp_release(net)
    return seconds, losses, nbytes


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    (plain, losses), held = recorded.measured(lambda: plainly(device))
    pool = commpool.Pool("gradients", symmetric_across=dist.group.WORLD)  # ddp reserves what it needs
    (ours, same, nbytes), held_too = recorded.measured(lambda: in_windows(pool, device), pool)
    if dist.get_rank() == 0:
        apart = max(abs(one - other) for one, other in zip(losses, same))
        print(f"losses apart by at most {apart:g}; {nbytes >> 10} KiB of buckets in windows")
        print(f"a step takes {1e3 * plain:.2f} ms, and {1e3 * ours:.2f} ms with buckets in windows")
    recorded.record(plain={"ms": 1e3 * plain, **held}, windows={"ms": 1e3 * ours, **held_too})
    pool.reclaim()
    pool.close()
    pool.destroy()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
