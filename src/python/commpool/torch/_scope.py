"""Scopes: while one is open, torch's tensors go to its pool, those of the backward() called in it too."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, TypeVar

import torch

import commpool
from commpool import errors, options
from commpool.handles import Device, Stream, device_number

from ._fallback import fell_back
from ._install import ensure_installed, introduce, remember_entrance
from ._mem_pool import mem_pool
from ._router import Plan, Router, reason

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Scope = TypeVar("_Scope", bound="PlainScope")


class Entrance(ctypes.Structure):
    """A plan of the router's with the functions that it is for; `_fast_routed.c` reads it."""

    _fields_ = [("enter", ctypes.c_void_p), ("leave", ctypes.c_void_p), ("plan", ctypes.POINTER(Plan))]

    router: Router


# What a scope needs: its pool, an entrance with its address, or a scope that does the work.
Made = tuple[commpool.Pool, Optional[Entrance], int, Any]


def configure(pool: commpool.Pool, *, device: Optional[Device] = None, stream: Stream = None,
              sizes: Optional[options.SizeRange] = None, exhaustion: options.ExhaustionWord = "error",
              filter: Optional[options.FilterWord] = None) -> Made:
    """Checks the arguments of a scope, and installs the router where it is not."""
    plain = {"device": device, "sizes": sizes, "exhaustion": exhaustion, "filter": filter, "stream": stream}
    if not isinstance(pool, commpool.Pool):
        raise errors.InvalidArgument(f"use_pool takes a commpool.Pool, not {pool!r}")
    if device is not None and device_number(device) != pool.device:
        raise errors.InvalidArgument(f"pool {pool.name} serves device {pool.device}, not {device}: a scope catches its "
                                     "pool's device alone")
    router = ensure_installed()
    if router is None:
        return pool, None, 0, _mem_pool_scope(pool, plain)
    introduce(router, pool)
    if stream is not None or filter in ("stream", "process"):
        # From any thread: the library's own scopes do that, and the router asks them.
        return pool, None, 0, commpool.use_pool(pool, device=device, stream=stream, sizes=sizes, exhaustion=exhaustion,
                                                filter=filter)
    least, most = options.size_range(sizes)
    plan = Plan(pool.handle, pool.device, pool.mode == "symmetric", options.number_of("exhaustion", exhaustion), least,
                most)
    entrance = Entrance(router.address("scope_enter"), router.address("scope_leave"), ctypes.pointer(plan))
    entrance.router = router
    made = pool, entrance, ctypes.addressof(entrance), None
    if hasattr(pool, "_entrance") and sizes is None and exhaustion == "error":
        remember_entrance(pool, made)
    return made


@contextlib.contextmanager
def _mem_pool_scope_once(pool: commpool.Pool) -> Iterator[None]:
    with torch.cuda.use_mem_pool(mem_pool(pool), device=pool.device):
        yield


class _MemPoolScope:
    """Without a router: torch's own scope over a MemPool of ours. It is of the calling thread alone."""

    def __init__(self, pool: commpool.Pool) -> None:
        self.pool = pool

    def __enter__(self) -> commpool.Pool:
        fell_back("scopes without backward",
                  f"there is no router for torch {torch.__version__} ({reason()}): scopes use torch.cuda.MemPool, "
                  "which does not route what backward() allocates")
        self._scope = _mem_pool_scope_once(self.pool)
        self._scope.__enter__()
        return self.pool

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)

    def again(self) -> _MemPoolScope:
        return _MemPoolScope(self.pool)


def _mem_pool_scope(pool: commpool.Pool, words: dict[str, Any]) -> _MemPoolScope:
    asked = [name for name, word in words.items() if word is not None and (name, word) != ("exhaustion", "error")]
    if asked not in ([], ["device"]):
        raise errors.NotSupported(f"without the router a scope has no {', '.join(asked)}: {reason()}")
    return _MemPoolScope(pool)


def refuse_open(scope: Any) -> None:
    """Raises why a scope cannot begin: it has begun."""
    raise errors.FailedPrecondition(f"the scope of {scope.pool!r} is open already: make another use_pool for each with")


def refuse_closed(_scope: Any) -> None:
    """Raises why a scope cannot end: it has not begun."""
    raise errors.FailedPrecondition("the scope is not open")


def refuse_thread(scope: Any) -> None:
    """Raises what is wrong with the end of a scope on another thread; it catches nothing any more."""
    raise errors.FailedPrecondition(f"a scope of {scope.pool!r} was left on another thread than it was entered on. It "
                                    "has ended all the same; open a scope inside of what a thread runs, not around it")


def delegate_again(scope: Any) -> Any:
    """A second scope like one that another does the work of."""
    return scope.delegate.again()


class PlainScope:
    """A scope by ctypes alone; `_fast.RoutedScope` is the same in C."""

    __slots__ = ("pool", "delegate", "_entrance", "_scope", "_open")

    def __init__(self, pool: commpool.Pool, **words: Any) -> None:
        known: Optional[Made] = getattr(pool, "_entrance", None) if not words else None
        made = known or configure(pool, **words)
        self.pool: commpool.Pool = made[0]
        self._entrance: Optional[Entrance] = made[1]
        self.delegate: Any = made[3]
        self._scope, self._open = None, False

    def __enter__(self) -> commpool.Pool:
        if self._open:
            refuse_open(self)
        if self.delegate is not None:
            self.delegate.__enter__()
        else:
            assert self._entrance is not None
            self._scope = self._entrance.router.scope_enter(self._entrance.plan)
        self._open = True
        return self.pool

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if not self._open:
            refuse_closed(self)
        self._open = False
        if self.delegate is not None:
            self.delegate.__exit__(kind, error, trace)
            return
        assert self._entrance is not None
        scope, self._scope = self._scope, None
        if self._entrance.router.scope_leave(scope) != 0:
            refuse_thread(self)

    def again(self: _Scope) -> Any:
        """Another scope with the same pool and options."""
        if self.delegate is not None:
            return self.delegate.again()
        other = self.__class__.__new__(self.__class__)
        other.pool, other._entrance, other.delegate, other._scope, other._open = (self.pool, self._entrance, None, None,
                                                                                  False)
        return other

    def __del__(self) -> None:
        if getattr(self, "_scope", None):
            assert self._entrance is not None
            self._entrance.router.scope_leave(self._scope)


if TYPE_CHECKING:
    Scope = PlainScope
else:
    try:
        from commpool._fast import RoutedScope as Scope
    except ImportError:
        Scope = PlainScope


class use_pool(Scope):
    """Routes torch's tensors into a pool: as a context manager, or as a decorator of functions.

        with commpool.use_pool(pool):
            loss(model(x), y).backward()

        @commpool.use_pool(pool, sizes=("1MiB", None), exhaustion="next_scope")
        def step(): ...

    What the thread allocates inside goes to the pool, and what the backward() does that is called inside, whichever
    thread runs it. Unrelated threads are not caught.

    Args:
      pool: where they go.
      device: the device that the program means: refused where the pool is another's.
      stream: catches what is allocated for this stream, on any thread, in place of what this thread allocates.
      sizes: (least, most) of what is caught, both in; None for no limit.
      exhaustion: "next_scope" hands what the pool cannot serve to the next scope out, at last to torch's own allocator.
      filter: "thread" (the default), "stream", or "process": every allocation.

    Scopes nest: of those that catch a tensor the one entered last wins. One object is one scope at a time; it may be
    used again.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, pool: commpool.Pool, *, device: Optional[Device] = None, stream: Stream = None,
                     sizes: Optional[options.SizeRange] = None, exhaustion: options.ExhaustionWord = "error",
                     filter: Optional[options.FilterWord] = None) -> None: ...

    def __call__(self, function: _Function) -> _Function:
        """A function that runs in the scope; each call, on whatever thread, in one of its own."""
        if (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function) or
                inspect.isasyncgenfunction(function)):
            raise errors.InvalidArgument(f"use_pool cannot decorate {function.__qualname__}: what it returns runs "
                                         "after the call has ended; open the scope inside of it")
        again = self.again

        @functools.wraps(function)
        def inside(*arguments: Any, **words: Any) -> Any:
            with again():
                return function(*arguments, **words)

        return inside  # type: ignore[return-value]
