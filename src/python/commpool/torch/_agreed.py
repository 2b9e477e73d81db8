"""What the ranks of a group have to share, compared over the group's store before anything is done with it."""

from __future__ import annotations

import json
from typing import Any, Sequence

import torch.distributed as dist

import commpool
from commpool import errors

from . import _group

_DEADLINE_MS = 120000


def checked_group(group: Any) -> Any:
    """The group itself; the default one for None.

    Raises:
      FailedPrecondition: there is none, or this rank is not in it.
    """
    if group is None:
        if not dist.is_available() or not dist.is_initialized():
            raise errors.FailedPrecondition("there is no process group: call torch.distributed.init_process_group(...)")
        return dist.group.WORLD
    if not _group.is_member(group):
        raise errors.InvalidArgument(f"{group!r} is no process group that this rank is in")
    return group


def check_windows(pool: commpool.Pool, across: str = "group") -> None:
    """Raises InvalidArgument where a pool is not symmetric, and says across what it is to be."""
    if pool.mode != "symmetric":
        raise errors.InvalidArgument(f"{pool!r} has no windows: make it with symmetric_across={across}")


def gathered(group: Any, said: Any) -> list[Any]:
    """What every rank says, rank 0 first: anything that JSON holds.

    Raises:
      RankMissing: a rank did not come.
    """
    agreement = _group.store_agreement(group, _DEADLINE_MS)
    return [json.loads(bytes(part)) for part in agreement.all_gather(json.dumps(said).encode())]


def same_everywhere(group: Any, what: str, lines: Sequence[str]) -> None:
    """Compares lines that describe something, on all ranks: the same error on each where one differs.

    Raises:
      Disagreement: it names the first line that differs, and both ranks.
    """
    everywhere = gathered(group, list(lines))
    first = everywhere[0]
    for rank, other in enumerate(everywhere):
        if other == first:
            continue
        place = next((place for place, (one, two) in enumerate(zip(first, other)) if one != two),
                     min(len(first), len(other)))
        here, there = (of[place] if place < len(of) else "nothing" for of in (first, other))
        raise errors.Disagreement(f"the ranks of group {group.group_name} have different {what}: number {place} is "
                                  f"{here} on rank 0 and {there} on rank {rank}. Nothing was changed")
