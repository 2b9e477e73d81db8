"""Communicators on which NCCL gathers with copy engines, so that no SM is taken from the computation beside it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import commpool

from . import _beside
from ._fallback import fell_back

_ZERO = 2  # NCCL_CTA_POLICY_ZERO
_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"  # its older name
_LEGACY_STREAMS = (0, 1)


def beside(group: Any, pool: commpool.Pool) -> Any:
    """A group of the same ranks, with such a communicator, which the pool is registered with.

    COLLECTIVE over the group. The other collectives of the group keep their own communicator: reductions are slower
    where copy engines are preferred.
    """
    return _beside.group_beside(group, pool, "all-gathers by copy engines", _options())


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
    if asynchronous or torch._C._cuda_getCurrentRawStream(output.get_device()) not in _LEGACY_STREAMS:
        return getattr(dist, _GATHER)(output, shard, group=group, async_op=asynchronous)
    current = torch.cuda.current_stream(output.device)
    side = torch.cuda.Stream(output.device)  # type: ignore[no-untyped-call]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        getattr(dist, _GATHER)(output, shard, group=group)
    current.wait_stream(side)
    return None
