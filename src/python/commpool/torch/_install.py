"""Puts the router in front of torch's allocator, and takes it away again."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import Iterable, Optional, Union

import torch

import commpool
from commpool import errors, sleeping
from commpool.pool import checked

from . import _call_lines, _router
from ._router import Router

# Of history that was asked for before the router came: torch does not tell how many events were asked for.
_EVENTS = 100_000
_lock = threading.Lock()
# Pools that are the whole allocator: torch may ask them as long as the process lives.
_defaults: dict[int, commpool.Pool] = {}


def ensure_installed() -> Optional[Router]:
    """The router, in place; None where there is none and MemPools have to do."""
    router = _router.router()
    if router is not None and not router.installed():
        install()
    return router


def introduce(router: Router, pool: commpool.Pool) -> None:
    """torch's statistics, snapshots and empty_cache cover the pool from now on."""
    router.check(router.know_pool(pool.handle, pool.device, pool.mode == "symmetric"))
    router.check(router.keep(pool.handle, getattr(pool, "kept_bytes", 0)))


def _record_from_now_on(router: Router) -> None:
    """History that torch records since before the router came is recorded of our pools too, with stacks of Python."""
    if not router.check(router.misses_history()):
        return
    router.record_ours_only(1)  # torch's own goes on as it was set: the call is ended before torch begins anew
    try:
        with contextlib.suppress(RuntimeError):
            torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=_EVENTS)
    finally:
        router.record_ours_only(0)
    if router.misses_history():
        warnings.warn("commpool.torch: torch has recorded memory history since before install(), and blocks of pools "
                      "are missing in it: call _record_memory_history again", RuntimeWarning, stacklevel=4)


def install(default: Union[None, commpool.Pool, Iterable[commpool.Pool]] = None) -> bool:
    """Puts the router in front of torch's allocator: at any time, also when tensors exist. Idempotent.

    `use_pool` and `mem_pool` do it themselves. Torch's statistics, snapshots, errors, graphs and `empty_cache` go on,
    and cover our pools too.

    Args:
      default: a pool, or several of different devices, that serve all tensors of their devices outside of scopes:
        the whole allocator. What torch's own graphs and MemPools catch stays torch's.

    Returns:
      False where there is no binary for this torch and no compiler: then scopes fall back to torch's MemPools.
    """
    given = default if isinstance(default, Iterable) else [] if default is None else [default]
    pools = [checked(pool, "install") for pool in given]
    for pool in pools:
        if pool.mode == "symmetric":
            raise errors.InvalidArgument(f"{pool!r} is symmetric: it cannot be the whole allocator, since ranks' other "
                                         "tensors differ; open a scope for those that all ranks share")
    router = _router.router()
    if router is None:
        if pools:
            raise errors.NotSupported(f"a whole allocator needs the router: {_router.reason()}")
        return False
    with _lock:
        router.check(router.install(_router.libcommpool()))
        _record_from_now_on(router)
        _call_lines.attach(router)
        sleeping.tell_when_awake(router.grant_again)
        for pool in pools:
            introduce(router, pool)
            router.check(router.set_default(pool.device, pool.handle))
            _defaults[pool.device] = pool
    return True


def uninstall() -> bool:
    """Routes nothing any more: new tensors are torch's own. Those that exist keep their deleter.

    Returns:
      True where torch has its own allocator again; False where blocks of ours are alive: then the router stays, as a
      forwarder, so that they find their way back. Call it again when they are gone.
    """
    router = _router.loaded()
    if router is None:
        return True
    with _lock:
        for device in list(_defaults):
            router.check(router.set_default(device, 0))
            del _defaults[device]
        return router.check(router.uninstall()) == 0


def installed() -> bool:
    """Whether the router routes now."""
    router = _router.loaded()
    return router is not None and bool(router.installed())
