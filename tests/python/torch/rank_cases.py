"""What programs with cases for several ranks share: where a rank runs, a line for each case, a pool's end."""

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
    """Runs `case(group)` for each, or for those that the command line names; rank 0 prints a line of JSON for each.

    Without `device_id` the group's communicator is made later, by torch's first collective.
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
    """Ends the group, on all ranks together."""
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.stdout.flush()


def end(pool, model=None):
    """Closes a pool that a program is done with, after all ranks' calls were alike; how many blocks were alive."""
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
