"""Megatron-LM's nccl_allocator over our pools. `dropins` offers these names."""

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
    """Compiles nothing, and changes no environment variable: NCCL_NVLS_ENABLE and torch's hooks stay the user's."""
    ensure_installed()


def create_nccl_mem_pool(symmetric: Optional[bool] = None, group: Any = None, device: Any = None, *,
                         reserve: Optional[Size] = None) -> Pool:
    """A pool for user buffers (nccl_ub).

    Args:
      symmetric: windows; else ordinary registrations, made at the end of a context, where NCCL may be called.
      group: None is the default group. It has all ranks of the groups that are registered later.
      device: None is the group's.
      reserve: what a symmetric pool has at once; it grows only in agreement.
    """
    group = _group.checked_group(group)
    if symmetric:
        return Pool("nccl_ub", device=device, symmetric_across=group, reserve=reserve)
    return Pool("nccl_ub", device=device, reserve=reserve)


def register_mem_pool(pool: commpool.Pool, group: Any, symmetric: bool = True) -> None:
    """Registers the pool's memory, now and later, with a group. A second call registers what has come since.

    For a symmetric pool all ranks call it: each with a group that it is in, or with what `new_group` returned. Only the
    creation of the pool decides about windows: without them `symmetric` is a second choice, and is counted.
    """
    if symmetric and pool.mode != "symmetric":
        fell_back("nccl_ub without windows", f"{pool!r} has no windows, and is registered as ordinary buffers: make it "
                                             "with create_nccl_mem_pool(symmetric=True), or say symmetric=False")
    pool.register_with(group)
    if pool.mode != "symmetric":
        pool.register_pending()


def deregister_mem_pool(pool: commpool.Pool, group: Any) -> None:
    """Ends the pool's registrations with a group, before the group is destroyed. It is collective as above."""
    pool.deregister(group)


class MemPoolAllocatorWithoutRegistration:
    """Use `with MemPoolAllocatorWithoutRegistration(pool):` around the code that makes the buffers, then
    `register_mem_pool`."""

    def __init__(self, pool: commpool.Pool) -> None:
        """Takes a pool of `create_nccl_mem_pool`."""
        self.pool = pool
        self._scope: Any = use_pool(pool)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)


class MultiGroupMemPoolAllocator(MemPoolAllocatorWithoutRegistration):
    """The same, but its end registers the pool with several groups, in their order."""

    def __init__(self, pool: commpool.Pool, groups: Sequence[Any], symmetric: bool = True) -> None:
        """`groups` are the groups with this rank; each rank has the same number."""
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
    """Use `with nccl_mem(pool, group=group):` around the code that makes the buffers. Its end registers them."""

    def __init__(self, pool: commpool.Pool, enabled: bool = True, device: Any = None, group: Any = None,
                 symmetric: bool = True) -> None:
        """`enabled=False` catches nothing."""
        super().__init__(pool, [_group.checked_group(group)] if enabled else [], symmetric)
        self._scope = use_pool(pool, device=device) if enabled else contextlib.nullcontext()
