"""Shared by programs with cases for several ranks: the rank's device, one line for each case, the end of a pool."""

import gc
import json
import os
import sys

import torch
import torch.distributed as dist

from routed import commpool

RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", RANK)


def run_cases(cases, device_id=DEVICE):
    """Runs `case(group)` for each case, or for those that the command line names. Rank 0 prints a line of JSON for
    each.

    Without `device_id`, torch's first collective makes the group's communicator.
    """
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=device_id)
    talk = dist.new_group(backend="gloo")
    for case in [case for case in cases if case.__name__ in sys.argv] or cases:
        said, everything = case(dist.group.WORLD), [None] * dist.get_world_size()
        dist.all_gather_object(everything, said, group=talk)
        if RANK == 0:
            print(json.dumps([case.__name__, everything]), flush=True)


def refusal(call, kind=commpool.CommpoolError):
    """The type and the text of our error that a call raises. One of another kind ends the rank."""
    try:
        call()
    except kind as error:
        return [type(error).__name__, str(error)]
    return None


class Scale(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), 2.0, device=DEVICE))

    def forward(self, x):
        return x * self.weight[:x.numel()]


class Scales(torch.nn.Module):
    """Layers in a row; forward leaves `unused` of them out."""

    def __init__(self, widths, unused=0):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scale(width) for width in widths)
        self.unused = unused

    def forward(self, x):
        for layer in self.layers[:len(self.layers) - self.unused]:
            x = layer(x)
        return x


def losses_of(model, x, steps, after_backward=lambda: None):
    """Trains with SGD."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=1 / 1024, foreach=False), []
    for _ in range(steps):
        loss = model(x).sum()
        loss.backward()
        after_backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def leave():
    """Ends the group on all ranks together."""
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.stdout.flush()


def end(pool, model=None):
    """Checks that all ranks made the same calls, and closes the pool. Returns how many blocks were alive."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        commpool.ddp_release(model)
    elif model is not None:
        commpool.fsdp_release(model)
    gc.collect()
    torch.cuda.synchronize()
    if pool.mode == "symmetric":
        pool.reclaim()
        pool.verify()
    live = pool.stats().allocated_blocks.current
    pool.close()
    pool.destroy()
    return live
