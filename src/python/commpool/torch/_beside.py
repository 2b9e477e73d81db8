"""Process groups that stand beside another one: of the same ranks, with a communicator configured for one purpose."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

import commpool

from . import _group
from ._fallback import fell_back

_MOST_BLOCKS = 64  # NCCL's own limit

# By group, then by purpose: a second model uses the first one's.
_made: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
# By pool: the names of the groups that it was registered with here.
_registered: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def group_beside(group: Any, pool: commpool.Pool, purpose: str, options: Any) -> Any:
    """Such a group, which the pool is registered with. COLLECTIVE over the group.

    Args:
      group: whose ranks it has. Its other collectives keep its own communicator.
      pool: symmetric over these ranks.
      purpose: says what it is for; groups of one purpose are one.
      options: ProcessGroupNCCL's, for its communicator.
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
        pool.register_with(_group.communicator_of(made, pool.device))
        known.add(made.group_name)
    return made


def take_from(pool: commpool.Pool, group: Any) -> list[Any]:
    """The groups beside a group that a pool was registered with, which it forgets: their ranks are lost as well."""
    known = _registered.get(pool, set())
    if not _group.is_group(group) or _group.or_none(group) is None:
        return []
    taken = [made for made in _made.get(group, {}).values() if made.group_name in known]
    known.difference_update(made.group_name for made in taken)
    return taken


def with_blocks(group: Any, pool: commpool.Pool, blocks: int) -> Any:
    """A group whose communicator runs every collective's kernel in at least so many blocks, on as many SMs.

    Where NCCL refuses such a communicator, which it does on all ranks, it is the group itself: counted, and said.
    """
    options = dist.ProcessGroupNCCL.Options()
    options.config.min_ctas, options.config.max_ctas = blocks, max(blocks, _MOST_BLOCKS)  # NCCL wants both or none
    try:
        return group_beside(group, pool, f"kernels of {blocks} blocks and more", options)
    except dist.DistBackendError as error:
        fell_back("a communicator with NCCL's number of blocks",
                  f"NCCL made no communicator whose kernels have at least {blocks} blocks: {error}")
        return group
