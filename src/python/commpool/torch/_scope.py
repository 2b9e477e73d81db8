"""Scopes: while one is open, torch's tensors go to its pool, also those of a backward() that is called in it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Callable, Iterator

import torch

import commpool
from commpool import StatusCode, errors, scopes
from commpool._library import check, fast

from ._fallback import fell_back
from ._install import ensure_installed, introduce, introduce_pinned, is_pinned
from ._mem_pool import mem_pool
from ._router import loaded, reason


@contextlib.contextmanager
def _mem_pool_scope(pool: commpool.Pool) -> Iterator[None]:
    """Without a router: torch's own scope over a MemPool of ours. It works only for the calling thread."""
    fell_back("scopes without backward",
              f"there is no router for torch {torch.__version__} ({reason()}): scopes use torch.cuda.MemPool, which "
              "does not route what backward() allocates")
    with torch.cuda.use_mem_pool(mem_pool(pool), device=pool.device):
        yield


class PlainScope(scopes.PlainScope):
    """A router's scope by ctypes alone; `_fast.RoutedScope` is the same in C."""

    __slots__ = ()

    @staticmethod
    def _begin(*arguments: Any) -> int:
        router = loaded()
        return int(router.scope_begin(*arguments)) if router is not None else StatusCode.NOT_CAUGHT

    @staticmethod
    def _end(scope: int, _loaded: Callable[[], Any] = loaded) -> int:
        return int(_loaded().scope_end(scope))


class _Words(scopes.Words):
    """What scopes need for torch: the router, and a pool that the router knows."""

    __slots__ = ()

    @staticmethod
    def _configure(pool: commpool.Pool, **words: Any) -> Any:
        if is_pinned(pool):
            if words.get("stream") is not None or words.pop("filter", None) not in (None, "process"):
                raise errors.InvalidArgument(f"{pool!r} is of pinned memory: its scope catches the pinned tensors of "
                                             "every thread, since helper threads make them, and takes no stream= and "
                                             "no other filter=")
        made = scopes.configure(pool, **words)
        asked = [name for name, word in words.items() if word is not None and (name, word) != ("exhaustion", "error")]
        router = ensure_installed()
        if router is None and asked not in ([], ["device"]):
            raise errors.NotSupported(f"without the router a scope has no {', '.join(asked)}: {reason()}")
        if router is not None and not is_pinned(pool) and {"stream", "filter"} & set(asked):
            introduce(router, pool)
        return made

    def _otherwise(self: Any, status: int) -> Any:
        """Finds another scope when the router is there and knows the pool; without a router torch's own."""
        if status == StatusCode.OUT_OF_MEMORY:
            raise errors.OutOfMemory("the host has no memory for a scope")
        if status != StatusCode.NOT_CAUGHT:
            check(status)
        router = ensure_installed()
        if is_pinned(self.pool):
            if router is None:
                raise errors.NotSupported(f"pinned tensors need the router: {reason()}")
            introduce_pinned(router, self.pool)
            scope = self.again()
        elif router is None:
            scope = _mem_pool_scope(self.pool)
        else:
            introduce(router, self.pool)
            scope = self.again()
        scope.__enter__()
        return scope

    def _refuse_end(self: Any, status: int) -> None:
        if status == StatusCode.NOT_FOUND:
            raise errors.FailedPrecondition(f"the scope of {self.pool!r} is not open on this thread: leave it where "
                                            "it was entered")
        self._left_wrongly("it was left before one that was entered after it"
                           if status == StatusCode.INVALID_ARGUMENT else
                           "it was left on another thread than it was entered on")


if TYPE_CHECKING:
    Scope = scopes.use_pool
else:
    Scope = fast.RoutedScope if fast else PlainScope


class use_pool(Scope, _Words):
    """Routes torch's tensors into a pool: as a context manager, or as a decorator of functions.

        with commpool.use_pool(pool):
            loss(model(x), y).backward()

        @commpool.use_pool(pool, sizes=("1MiB", None), exhaustion="next_scope")
        def step(): ...

    It catches what the thread allocates inside, and what a backward() that is called inside allocates, on whatever
    thread it runs. It does not catch unrelated threads. A scope over a pool of pinned memory catches pinned tensors
    instead, of every thread: `pin_memory()`, `empty(pin_memory=True)`, `DataLoader(pin_memory=True)`.

    Args:
      pool: the pool that gets the tensors.
      device: the device that the program expects; refused if the pool is another device's.
      stream: catches allocations for this stream on any thread, instead of this thread's allocations.
      sizes: (lower, upper) limit of the sizes that it catches; both are included, None is no limit.
      exhaustion: "next_scope" passes what the pool cannot serve to the next outer scope, at last to torch's own
        allocator.
      filter: "thread" (the default), "stream", or "process": every allocation.

    Scopes nest: if several catch a tensor, the one that began last wins. One object is one scope at a time; it can be
    used again. A scope must end on the thread, and in the asyncio task, that began it, innermost first; do not await
    inside. If it is left in another way, it has ended, and raises FailedPrecondition.
    """

    __slots__ = ()
