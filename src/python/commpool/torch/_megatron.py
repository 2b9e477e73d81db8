"""Megatron-LM's nccl_allocator, over pools of ours: `dropins` has these names."""

from __future__ import annotations

import contextlib
from typing import Any, Optional, Sequence

import commpool
from commpool import errors
from commpool.sizes import Size

from . import _group
from ._fallback import fell_back
from ._install import ensure_installed
from ._pool import Pool
from ._scope import use_pool


def init() -> None:
    """Compiles nothing, and leaves the environment alone: NCCL_NVLS_ENABLE and torch's hooks stay the user's."""
    ensure_installed()


def create_nccl_mem_pool(symmetric: Optional[bool] = None, group: Any = None, device: Any = None, *,
                         reserve: Optional[Size] = None) -> Pool:
    """A pool for user buffers (nccl_ub).

    Args:
      symmetric: windows; else ordinary registrations, made where NCCL can be asked: at the end of a context.
      group: None is the default group; it has all ranks of the groups that are registered later.
      device: None is the group's.
      reserve: what a symmetric pool has at once; it grows in agreement only.
    """
    group = _group.checked_group(group)
    if symmetric:
        return Pool("nccl_ub", device=device, symmetric_across=group, reserve=reserve)
    return Pool("nccl_ub", device=device, reserve=reserve)


def register_mem_pool(pool: commpool.Pool, group: Any, symmetric: bool = True) -> None:
    """Registers what the pool has, and will have, with a group; again, what has come since.

    Of a symmetric pool all ranks call it: each with a group that it is in, or with what `new_group` gave it. Whether
    there are windows is decided where the pool is made: without them `symmetric` falls back, and is counted.
    """
    if symmetric and pool.mode != "symmetric":
        fell_back("nccl_ub without windows", f"{pool!r} has no windows, and is registered as ordinary buffers: make it "
                                             "with create_nccl_mem_pool(symmetric=True), or say symmetric=False")
    pool.register_with(group)
    if pool.mode != "symmetric":
        pool.register_pending()


def deregister_mem_pool(pool: commpool.Pool, group: Any) -> None:
    """Ends the pool's registrations with a group, before it is destroyed; collective as above."""
    pool.deregister(group)


class MemPoolAllocatorWithoutRegistration:
    """`with MemPoolAllocatorWithoutRegistration(pool):` around what makes the buffers; `register_mem_pool` follows."""

    def __init__(self, pool: commpool.Pool) -> None:
        """A pool of `create_nccl_mem_pool`."""
        self.pool = pool
        self._scope: Any = use_pool(pool)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)


class MultiGroupMemPoolAllocator(MemPoolAllocatorWithoutRegistration):
    """The same, registered with several groups at its end, in their order."""

    def __init__(self, pool: commpool.Pool, groups: Sequence[Any], symmetric: bool = True) -> None:
        """`groups` are those that this rank is in, as many on each rank."""
        for group in groups:
            if not _group.is_group(group):
                raise errors.InvalidArgument(f"{group!r} is no process group")
        super().__init__(pool)
        self.groups, self.symmetric = list(groups), symmetric

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None:
            for group in self.groups:
                register_mem_pool(self.pool, group, self.symmetric)


class nccl_mem(MultiGroupMemPoolAllocator):
    """`with nccl_mem(pool, group=group):` around what makes the buffers; they are registered after."""

    def __init__(self, pool: commpool.Pool, enabled: bool = True, device: Any = None, group: Any = None,
                 symmetric: bool = True) -> None:
        """`enabled=False` catches nothing."""
        super().__init__(pool, [_group.checked_group(group)] if enabled else [], symmetric)
        self._scope = use_pool(pool, device=device) if enabled else contextlib.nullcontext()
