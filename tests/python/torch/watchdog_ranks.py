"""The ranks of group_test when torch's own watchdog aborts a group. Rank 0 prints a line of JSON."""

import datetime
import json
import os
import threading

import torch
import torch.distributed as dist

from routed import commpool

from rank_cases import DEVICE, RANK

_TIMEOUT = datetime.timedelta(seconds=3)
_PATIENCE = datetime.timedelta(seconds=120)


def abandoned(pool):
    """Whether the pool abandons its registrations in time; nobody here asks it to."""
    pause = threading.Event()
    for _ in range(int(_PATIENCE.total_seconds() * 20)):
        if pool.stats().registered_segments == 0:
            return True
        pause.wait(0.05)
    return False


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl2", device_id=DEVICE, timeout=_TIMEOUT)
    store, x = dist.distributed_c10d._get_default_store(), torch.ones(4, device=DEVICE)
    dist.all_reduce(x)
    pool = commpool.Pool(symmetric_across=dist.group.WORLD, reserve="2MiB", deadline_ms=1000)
    if RANK == 0:
        before = pool.stats().registered_segments
        dist.all_reduce(x, async_op=True)  # the other rank never comes
        said = [pool.abandons_itself, before, abandoned(pool)]
        print(json.dumps(["watched", said]), flush=True)
        store.set("done", "")
        store.wait(["heard"], _PATIENCE)
    else:
        store.wait(["done"], _PATIENCE)
        store.set("heard", "")
    os._exit(0)  # the watchdog would end the process next


main()
