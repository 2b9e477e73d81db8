"""torch.cuda.MemPool objects over our pools: for use_mem_pool, torch.compile, graphs, and contexts of vLLM and
SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

import torch

import commpool
from commpool import errors
from commpool.handles import Device
from commpool.pool import PoolOptions, checked
from commpool.sizes import Size

from ._fallback import fell_back
from ._install import ensure_installed, introduce, keep_for_graphs, refuse_pinned
from ._router import Router, reason

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WHY_NO_WINDOWS = ("a torch.cuda.MemPool allocates whenever one rank runs short, and windows are made by all ranks "
                   "together: make a commpool.torch.Pool(symmetric_across=group, reserve=...) and open use_pool(pool)")


class MemPoolOptions(PoolOptions, total=False):
    """The options of a pool that `mem_pool` makes: all of Pool's, except a home communicator."""

    name: str
    device: Optional[Device]
    reserve: Optional[Size]


class _MemPool(torch.cuda.MemPool):
    """Stays, with its pool, while graphs use it: others are captured into it by the `pool()` of those."""

    _made = False

    def __init__(self, *allocator: Any) -> None:
        super().__init__(*allocator)
        self._made = True

    def __del__(self, keep: Callable[..., None] = keep_for_graphs) -> None:
        if self._made:
            keep(self)


def mem_pool(pool: Optional[commpool.Pool] = None, **options: Unpack[MemPoolOptions]) -> torch.cuda.MemPool:
    """A real torch.cuda.MemPool with the memory of one of our pools.

        with torch.cuda.use_mem_pool(commpool.mem_pool(pool)):
            ...

    Args:
      pool: a fixed pool, or with the router also an expandable one. None makes one of `options`, which are Pool's.

    The MemPool keeps its pool alive (`commpool_pool`). Like every MemPool its scopes are of the calling thread alone:
    `use_pool` follows backward(). Without the router torch caches on top of the pool, in segments of its own, and every
    device that is in use then and reaches the pool's is granted.

    Raises:
      NotSupported: a pool with windows was given or asked for.
      InvalidArgument: a pool of pinned memory was.
    """
    if pool is not None:
        checked(pool, "mem_pool")
    if options.get("symmetric_across") is not None or (pool is not None and pool.mode == "symmetric"):
        raise errors.NotSupported(f"no MemPool has windows: {_WHY_NO_WINDOWS}")
    if pool is None:
        from ._pool import Pool  # Pool needs scopes, and scopes need this module

        options.setdefault("name", "mem_pool")
        pool = Pool(**options)
    elif options:
        raise errors.InvalidArgument(f"the pool is made already: {', '.join(options)} cannot be given with it")
    refuse_pinned(pool, "a MemPool")
    router = ensure_installed()
    with torch.cuda.device(pool.device):
        made = _over_functions(pool) if router is None else _routed(router, pool)
    made.commpool_pool = pool  # type: ignore[attr-defined]
    return made


def _routed(router: Router, pool: commpool.Pool) -> torch.cuda.MemPool:
    introduce(router, pool)
    router.bind_next(pool.handle)
    try:
        return _MemPool()
    finally:
        router.bind_next(0)


def _over_functions(pool: commpool.Pool) -> torch.cuda.MemPool:
    """Uses a pair of the library's C functions, below torch's own cache."""
    if pool.mode != "fixed":
        raise errors.NotSupported(f"without the router a MemPool needs a fixed pool, and {pool!r} is not: {reason()}")
    fell_back("MemPool over functions",
              f"there is no router for torch {torch.__version__} ({reason()}): the MemPool takes segments from the "
              "pool, and torch splits them")
    _grant_to_devices_in_use(pool)
    functions = pool.functions()
    return _MemPool(torch._C._cuda_customAllocator(functions.allocate, functions.free))


def _grant_to_devices_in_use(pool: commpool.Pool) -> None:
    """torch makes them peers at any time, and tells the router alone: a kernel there would fail without a grant."""
    for device in range(torch.cuda.device_count()):
        if (pool.backing == "vmm" and torch._C._cuda_hasPrimaryContext(device) and pool.access_of(device) == "none" and
                torch.cuda.can_device_access_peer(device, pool.device)):
            pool.grant(device)
