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


def leave():
    """Ends the group on all ranks together."""
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.stdout.flush()


def end(pool, model=None):
    """Checks that all ranks made the same calls, and closes the pool. Returns how many blocks were alive."""
    if model is not None:
        commpool.fsdp_release(model)
    gc.collect()
    torch.cuda.synchronize()
    pool.reclaim()
    pool.verify()
    live = pool.stats().allocated_blocks.current
    pool.close()
    pool.destroy()
    return live
