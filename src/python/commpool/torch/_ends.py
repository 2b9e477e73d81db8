"""The ends of process groups: a pool's registrations with a group end before the group is destroyed, for NCCL tells
nobody that a communicator ends; and a pool whose group is gone is refused instead of handed to NCCL.

`torch.distributed.destroy_process_group` shuts each group down by `ProcessGroup.shutdown`, where this listens: a
wrapper of the function itself would miss who imported it by name.
"""

from __future__ import annotations

import functools
import threading
import warnings
from typing import TYPE_CHECKING, Any, Optional

import torch.distributed as dist
from torch.distributed import distributed_c10d

from commpool import errors

if TYPE_CHECKING:
    from ._pool import Pool

_lock = threading.Lock()
# Pools over living groups, in the order in which they were made, the same on all ranks. One that the program has
# dropped without close() is kept until its groups end: nobody else could end its registrations.
_pools: dict[int, Pool] = {}


class Registration:
    """One of a pool with a group: the communicator is remembered, for a group that is gone does not tell it."""

    def __init__(self, group: Any, communicator: int, of_all: bool) -> None:
        """With a group. `of_all`: all ranks of the pool's home are in it, so that they can end it together."""
        self.group, self.name, self.communicator, self.of_all = group, group.group_name, communicator, of_all
        self.ended = False  # in good order, or abandoned: NCCL has nothing of the pool any more

    @property
    def gone(self) -> bool:
        """Whether torch has destroyed the group."""
        return self.group not in distributed_c10d._world.pg_map


def remember(pool: Pool, registration: Registration) -> None:
    """From now on the group's end ends this registration first."""
    _listen()
    with _lock:
        _pools[id(pool)] = pool
    pool._registrations[registration.name] = registration


def forget(pool: Pool) -> None:
    """For a pool that has ended."""
    with _lock:
        _pools.pop(id(pool), None)
    for registration in pool._registrations.values():
        registration.ended = True


@functools.lru_cache(maxsize=None)
def _listen() -> None:
    of_groups: Any = dist.ProcessGroup
    shutdown = of_groups.shutdown

    @functools.wraps(shutdown)
    def ending(group: Any) -> Any:
        _before_the_end(group)
        return shutdown(group)

    of_groups.shutdown = ending


def _before_the_end(group: Any) -> None:
    with _lock:
        pools = list(_pools.values())
    for pool in pools:
        registration = pool._registrations.get(group.group_name)
        if registration is None or registration.group is not group or registration.ended or pool.closed:
            continue
        _end(pool, registration)
        if all(one.ended for one in pool._registrations.values()):
            forget(pool)


def _end(pool: Pool, registration: Registration) -> None:
    """On all ranks together where they all come, else on this one alone."""
    why: Optional[errors.CommpoolError] = None
    try:
        if registration.of_all:
            pool.deregister(registration.group)
        else:
            pool.abandon(registration.group)
    except errors.CommpoolError as error:
        why = error
    if registration.ended:
        return
    try:
        pool.abandon(registration.group)
    except errors.CommpoolError as error:
        why = error
    warnings.warn(f"pool {pool.name!r}: process group {registration.name} is destroyed before the pool was closed, and "
                  f"this rank ended its registrations alone ({why}). Call pool.close() before "
                  "destroy_process_group()", RuntimeWarning, stacklevel=5)


def refuse_gone(pool: Pool, call: str) -> None:
    """Raises FailedPrecondition where a group of the pool is gone, and NCCL would get its communicator."""
    for registration in pool._registrations.values():
        if registration.gone and not registration.ended:
            raise errors.FailedPrecondition(
                f"pool {pool.name!r} cannot {call}: process group {registration.name} was destroyed before the pool: "
                f"call pool.abandon(group), then pool.close(). Next time close() comes before destroy_process_group()")


def refuse_homeless(pool: Pool, call: str) -> None:
    """Raises FailedPrecondition where the pool's home is gone, and the call needs it."""
    home = pool._home
    if home is not None and home.gone:
        raise errors.FailedPrecondition(
            f"pool {pool.name!r} cannot {call}: process group {home.name}, its home, was destroyed: close() the pool, "
            "or rehome() it over another group. Where ranks are missing, abandon(group) first")
