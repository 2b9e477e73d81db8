"""Communicators on which NCCL gathers with copy engines, so that no SM is taken from the computation beside it."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

import commpool

from . import _group
from ._fallback import fell_back

_ZERO = 2  # NCCL_CTA_POLICY_ZERO
_LEGACY_STREAMS = (0, 1)

# By pool, then by the name of the group that they stand beside: a second model uses the first one's.
_groups: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def beside(group: Any, pool: commpool.Pool) -> Any:
    """A group of the same ranks, with such a communicator, which the pool is registered with.

    COLLECTIVE over the group. The other collectives of the group keep their own communicator: reductions are slower
    where copy engines are preferred.
    """
    known = _groups.setdefault(pool, {})
    made = known.get(group.group_name)
    if made is None:
        made = dist.new_group(dist.get_process_group_ranks(group), backend="nccl", pg_options=_options(),
                              use_local_synchronization=True, group_desc="commpool: all-gathers by copy engines",
                              device_id=torch.device("cuda", pool.device))
        pool.register_with(_group.communicator_of(made, pool.device))
        known[group.group_name] = made
    return made


def _options() -> Any:
    options = dist.ProcessGroupNCCL.Options()
    if hasattr(options.config, "cta_policy"):
        options.config.cta_policy = getattr(dist.ProcessGroupNCCL, "NCCL_CTA_POLICY_ZERO", _ZERO)
    else:
        fell_back("all-gathers with SMs",
                  f"torch {torch.__version__} knows no CTA policy of NCCL: all-gathers in windows run as kernels")
    return options


def all_gather(output: torch.Tensor, shard: torch.Tensor, group: Any, asynchronous: bool) -> Any:
    """Gathers over such a group; on a stream of its own where the current one is the legacy default stream.

    NCCL cannot run copy engines there: cudaMemcpyBatchAsync refuses that stream.
    """
    current = torch.cuda.current_stream(output.device)
    if asynchronous or current.cuda_stream not in _LEGACY_STREAMS:
        return dist.all_gather_into_tensor(output, shard, group=group, async_op=asynchronous)
    side = torch.cuda.Stream(output.device)  # type: ignore[no-untyped-call]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        dist.all_gather_into_tensor(output, shard, group=group)
    current.wait_stream(side)
    return None
