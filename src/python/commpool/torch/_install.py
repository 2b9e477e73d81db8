"""Puts the router in front of torch's allocator, and removes it again."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from typing import Any, Iterable, Optional, Union

import torch

import commpool
from commpool import errors, sleeping
from commpool._library import library
from commpool.pool import checked

from . import _call_lines, _router
from ._router import Router

# For history that the program asked for before the router came: torch does not tell the number of events.
_EVENTS = 100_000
_lock = threading.Lock()
# Pools that are the whole allocator. torch may use them as long as the process lives.
_defaults: dict[int, commpool.Pool] = {}
# MemPools of ours that the program has let go, and graphs use.
_of_graphs: list[torch.cuda.MemPool] = []


def ensure_installed() -> Optional[Router]:
    """The router, installed; None if there is none, so that MemPools must do."""
    router = _router.router()
    if router is not None and not router.installed():
        install()
    return router


def is_pinned(pool: object) -> bool:
    return isinstance(pool, commpool.Pool) and pool.backing == "pinned"


def refuse_pinned(pool: commpool.Pool, place: str) -> None:
    """Raises InvalidArgument for a pool of pinned memory: what wants memory of a device must not get it."""
    if is_pinned(pool):
        raise errors.InvalidArgument(f"{pool!r} is of pinned memory, and {place} has tensors of a device: open "
                                     "use_pool(pool), which catches pinned tensors")


def introduce(router: Router, pool: commpool.Pool) -> None:
    """From now on torch's statistics, snapshots and empty_cache cover the pool.

    Raises:
      NotFound: it was destroyed.
    """
    pool.config()  # by name: the router knows numbers alone
    router.check(router.know_pool(pool.handle, pool.device, pool.mode == "symmetric"))
    router.check(router.keep(pool.handle, getattr(pool, "kept_bytes", 0)))


def introduce_pinned(router: Router, pool: commpool.Pool) -> None:
    """From now on scopes over the pool catch pinned tensors.

    Raises:
      NotFound: it was destroyed.
      InvalidArgument: its blocks need a stream each.
    """
    pool.config()
    if pool._orders_frees:
        raise errors.InvalidArgument(f"{pool!r} has frees=\"ordered\", and torch's pinned tensors have no stream")
    with _lock:
        router.check(router.know_pinned(pool.handle))


def keep_for_graphs(*let_go: torch.cuda.MemPool, kept: list[torch.cuda.MemPool] = _of_graphs) -> None:
    """Keeps those that graphs use; lets those go that none uses any more. Another thread's may come in between."""
    kept.extend(let_go)
    for one in list(kept):
        if one.use_count() <= 1:
            with contextlib.suppress(ValueError):
                kept.remove(one)


def _refuse_other_allocators() -> None:
    """Raises NotSupported where torch's allocator is not its own one, which the router stands in front of."""
    backend = torch.cuda.memory.get_allocator_backend()
    if backend != "native":
        instead = ("take backend:cudaMallocAsync out of PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF"
                   if backend == "cudaMallocAsync" else
                   "instead of change_current_allocator call commpool.install(default=pool)")
        raise errors.NotSupported(f"torch's allocator is {backend} here, and commpool.torch needs torch's own one: "
                                  f"{instead}")


def _record_from_now_on(router: Router) -> None:
    """If torch has recorded history since before the router came, records it for our pools too, with Python stacks."""
    if not router.check(router.misses_history()):
        return
    router.record_ours_only(1)  # torch's own history continues unchanged: the call ends before torch would start anew
    try:
        with contextlib.suppress(RuntimeError):
            torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=_EVENTS)
    finally:
        router.record_ours_only(0)
    if router.misses_history():
        warnings.warn("commpool.torch: torch has recorded memory history since before install(), and blocks of pools "
                      "are missing in it: call _record_memory_history again", RuntimeWarning, stacklevel=4)


def install(default: Union[None, commpool.Pool, Iterable[commpool.Pool]] = None) -> bool:
    """Puts the router in front of torch's allocator, at any time, even when tensors exist. A second call is allowed.

    `use_pool` and `mem_pool` call it. Torch's statistics, snapshots, errors, graphs and `empty_cache` still work, and
    cover our pools too.

    Args:
      default: a pool, or several for different devices. They serve all tensors of their devices outside of scopes, as
        the whole allocator. Torch still serves what its own graphs and MemPools catch.

    Returns:
      False if there is no binary for this torch and no compiler. Scopes then use torch's MemPools.
    """
    given: Any = [] if default is None else default
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    pools = [checked(pool, "install") for pool in given]
    for pool in pools:
        if pool.mode == "symmetric":
            raise errors.InvalidArgument(f"{pool!r} is symmetric: it cannot be the whole allocator, since ranks' other "
                                         "tensors differ; open a scope for those that all ranks share")
        refuse_pinned(pool, "a whole allocator")
    if len({pool.device for pool in pools}) < len(set(pools)):
        raise errors.InvalidArgument(f"install: {pools} has two pools of one device: a device has one whole allocator")
    _refuse_other_allocators()
    router = _router.router()
    if router is None:
        if pools:
            raise errors.NotSupported(f"a whole allocator needs the router: {_router.reason()}")
        return False
    with _lock:
        router.check(router.install(os.fsencode(library.path)))
        _record_from_now_on(router)
        _call_lines.attach(router)
        sleeping.tell_when_awake(router.grant_again)
        for pool in pools:
            introduce(router, pool)
            router.check(router.set_default(pool.device, pool.handle))
            _defaults[pool.device] = pool
    return True


def uninstall() -> bool:
    """Stops routing: new tensors are torch's own. Existing tensors keep their deleter.

    Returns:
      True if torch has its own allocator again. False if blocks of ours are alive: the router then stays and only
      forwards, so that they can be freed. Call it again when they are gone.
    """
    router = _router.loaded()
    if router is None:
        return True
    keep_for_graphs()
    with _lock:
        for device in _defaults:
            router.check(router.set_default(device, 0))
        if gone := router.check(router.uninstall()) == 0:
            _defaults.clear()  # no sooner: a pool that nobody else holds ends with it
        return gone


def installed() -> bool:
    """Whether the router routes now."""
    router = _router.loaded()
    return router is not None and bool(router.installed())
