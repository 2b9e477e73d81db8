"""Process groups beside another one: they have the same ranks, and a communicator with settings for one purpose."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

import commpool

from . import _group
from ._fallback import fell_back

_MOST_BLOCKS = 64  # NCCL's own limit
_ZERO = 2  # NCCL_CTA_POLICY_ZERO
_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"  # the older name
_LEGACY_STREAMS = (0, 1)

# By group, then by purpose: a second model uses the first one's group.
_made: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
# By pool: the names of the groups that this module registered it with.
_registered: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def group_beside(group: Any, pool: commpool.Pool, purpose: str, options: Any) -> Any:
    """Makes such a group, and registers the pool with it. COLLECTIVE over the group.

    Args:
      group: the group with the ranks. Its other collectives keep its own communicator.
      pool: symmetric over these ranks.
      purpose: names the use. One group serves each purpose.
      options: ProcessGroupNCCL's options for the new communicator.
    """
    of_group = _made.setdefault(group, {})
    made: Any = of_group.get(purpose)
    if made is None:
        made = of_group[purpose] = dist.new_group(dist.get_process_group_ranks(group), backend="nccl",
                                                  pg_options=options, use_local_synchronization=True,
                                                  group_desc=f"commpool: {purpose}",
                                                  device_id=torch.device("cuda", pool.device))
    known = _registered.setdefault(pool, set())
    if made.group_name not in known:
        pool.register_with(made)
        known.add(made.group_name)
    return made


def take_from(pool: commpool.Pool, group: Any) -> list[Any]:
    """Forgets and returns the groups beside a group that a pool was registered with: their ranks are lost too."""
    known = _registered.get(pool, set())
    if not _group.is_member(group):
        return []
    taken = [made for made in _made.get(group, {}).values() if made.group_name in known]
    known.difference_update(made.group_name for made in taken)
    return taken


def with_blocks(group: Any, pool: commpool.Pool, blocks: int) -> Any:
    """A group whose communicator runs every collective's kernel in at least so many blocks, each on its own SM.

    If NCCL refuses such a communicator, it does so on all ranks. Then this returns the group itself, counts it, and
    warns.
    """
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas, options.config.max_ctas = blocks, max(blocks, _MOST_BLOCKS)  # NCCL takes both or none
    try:
        return group_beside(group, pool, f"kernels of {blocks} blocks and more", options)
    except dist.DistBackendError as error:
        fell_back("a communicator with NCCL's number of blocks",
                  f"NCCL made no communicator whose kernels have at least {blocks} blocks: {error}")
        return group


def with_copy_engines(group: Any, pool: commpool.Pool) -> Any:
    """A group on whose communicator NCCL gathers with copy engines, so that it takes no SM from computations.

    COLLECTIVE over the group. The group's other collectives keep their own communicator, because copy engines make
    reductions slower.
    """
    return group_beside(group, pool, "all-gathers by copy engines", _copy_engines())


def _copy_engines() -> Any:
    options = dist.ProcessGroupNCCL.Options()
    if hasattr(options.config, "cta_policy"):
        options.config.cta_policy = getattr(dist.ProcessGroupNCCL, "NCCL_CTA_POLICY_ZERO", _ZERO)
    else:
        fell_back("all-gathers with SMs",
                  f"torch {torch.__version__} knows no CTA policy of NCCL: all-gathers in windows run as kernels")
    return options


def all_gather(output: torch.Tensor, shard: torch.Tensor, group: Any, asynchronous: bool) -> Any:
    """Gathers over such a group. If the current stream is the legacy default stream, it uses a stream of its own.

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
