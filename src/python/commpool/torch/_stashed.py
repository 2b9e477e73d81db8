"""Tensors that torch's process group keeps of collectives that nobody waited for."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from commpool import errors

_SECONDS = 60
_BETWEEN_LOOKS = 0.01


def let_go(group: Any, device: torch.device) -> None:
    """Waits until the group keeps no tensor of the collectives so far. COLLECTIVE over it.

    ProcessGroupNCCL keeps what an asynchronous collective works on until somebody waits for it; where nobody does, as
    in DDP, until its watchdog has seen the end and a later collective comes. It goes through them in order: so one more
    is made that nobody waits for, and when its tensor is gone, all are.

    Raises:
      DeadlineExceeded: it did not let go.
    """
    witness = torch.zeros(1, device=device)
    storage = witness.untyped_storage()
    users = torch._C._storage_Use_Count(storage._cdata)
    dist.all_reduce(witness, group=group, async_op=True)
    del witness
    torch.cuda.synchronize(device)
    end = time.monotonic() + _SECONDS
    while True:
        kept = torch.full((1,), float(torch._C._storage_Use_Count(storage._cdata) >= users), device=device)
        dist.all_reduce(kept, group=group)  # the later collective, and the ranks stop together
        if not kept.item():
            return
        if time.monotonic() > end:
            raise errors.DeadlineExceeded(f"process group {group.group_name} still keeps tensors of its collectives "
                                          f"{_SECONDS} s after their end")
        time.sleep(_BETWEEN_LOOKS)  # the watchdog looks every 100 ms, and tells nobody
