"""Scopes: while one is open, allocations that its filter catches go to its pool, however deep they are made."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, NoReturn, Optional, TypeVar, Union

from . import arrays, blocks, errors, options
from .arrays import Array
from ._library import check, fast, last_error, library
from .handles import Device, Stream, device_number, stream_handle
from .pool import Pool, checked

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Scope = TypeVar("_Scope", bound="PlainScope")


def configure(pool: Pool, *, device: Optional[Device] = None, stream: Stream = None,
              sizes: Optional[options.SizeRange] = None, exhaustion: options.ExhaustionWord = "error",
              filter: Optional[options.FilterWord] = None) -> Any:
    """The options of a scope as commpool_scope_options, after a check against the pool."""
    checked(pool, "use_pool")
    if device is not None and device_number(device) != pool.device:
        raise errors.InvalidArgument(f"pool {pool.name} serves device {pool.device}, not {device}: a scope catches its "
                                     "pool's device alone")
    if stream is not None and filter not in (None, "stream"):
        raise errors.InvalidArgument(f"filter {filter!r} asks no stream: it excludes stream=")
    if stream is None and filter == "stream":
        raise errors.InvalidArgument("filter \"stream\" needs stream=: 0 is the default stream")
    chosen = filter or ("thread" if stream is None else "stream")
    return options.scope_options(chosen, exhaustion, stream_handle(stream), sizes)


configure.__name__ = configure.__qualname__ = "use_pool"  # what a program called, where Python refuses its words


def _running_task() -> int:
    """The asyncio task that runs on this thread, by its address; 0 for none. A task keeps its scopes."""
    asyncio = sys.modules.get("asyncio")
    running = asyncio and asyncio._get_running_loop() and asyncio.current_task()
    return id(running) if running else 0


class _Entered(threading.local):
    """The open scopes of this thread, the newest last. Weakly: a scope that is dropped ends."""

    def __init__(self) -> None:
        self.scopes: list[weakref.ref[Any]] = []


_entered = _Entered()


def current_pool() -> Optional[Pool]:
    """The pool of the scope that this thread entered last; None without one. Sizes and other devices aside, what the
    thread allocates goes there.
    """
    if fast:
        return fast.current_pool()  # type: ignore[no-any-return]
    open_ones = [scope for scope in (entered() for entered in _entered.scopes) if scope is not None]
    return open_ones[-1].pool if open_ones else None


class PlainScope:
    """A scope by ctypes alone; `_fast.Scope` is the same in C. The subclass `Words` has what need not be fast."""

    __slots__ = ("pool", "_options", "_scope", "_instead", "_task", "__weakref__")

    _begin: Callable[..., int] = library.commpool_scope_begin
    _end: Callable[[int], int] = library.commpool_scope_end

    def __init__(self: Any, pool: Pool, **words: Any) -> None:
        self._scope, self._instead, self.pool = 0, None, pool
        self._options = self._configure(pool, **words) if words or not isinstance(pool, Pool) else None

    def __enter__(self: Any) -> Pool:
        if self._scope or self._instead:
            self._refuse()
        scope = ctypes.c_uint64()
        given = ctypes.byref(self._options) if self._options else None
        status = self._begin(self.pool.handle, given, ctypes.byref(scope))
        self._scope = scope.value
        if status:
            self._instead = self._otherwise(status)
        else:
            _entered.scopes.append(weakref.ref(self))
        self._task = _running_task()
        return self.pool  # type: ignore[no-any-return]

    def __exit__(self: Any, *error: Any) -> None:
        instead, self._instead = self._instead, None
        if instead:
            instead.__exit__(*error)
            return
        status = self._end(self._scope)
        _entered.scopes = [entered for entered in _entered.scopes if entered() not in (None, self)]
        self._scope = 0  # it has ended, whether the call failed or not
        if status:
            self._refuse_end(status)
        if self._task and _running_task() != self._task:
            self._refuse_task()

    def again(self: _Scope) -> _Scope:
        """Another scope with the same pool and options."""
        other: Any = self.__class__.__new__(self.__class__)
        other._scope, other._instead, other.pool, other._options = 0, None, self.pool, self._options
        return other  # type: ignore[no-any-return]

    def __del__(self) -> None:
        if getattr(self, "_scope", 0):
            self._end(self._scope)


class Words:
    """What the scopes in C and by ctypes have in common: their arguments, their text, and decorators."""

    __slots__ = ()

    _configure: Any = staticmethod(configure)
    # a type in C has no signature
    __signature__ = inspect.signature(configure).replace(return_annotation=inspect.Signature.empty)

    def _refuse(self: Any) -> None:
        raise errors.FailedPrecondition(f"the scope of {self.pool!r} is open already: make another use_pool for each "
                                        "with")

    def _otherwise(self, status: int) -> Any:
        """Finds another open scope that does the work of one that did not begin; if there is none, raises the
        reason."""
        check(status)

    def _refuse_end(self, status: int) -> None:
        if status != errors.StatusCode.FAILED_PRECONDITION:
            check(status)
        self._left_wrongly(last_error())

    def _refuse_task(self) -> None:
        self._left_wrongly("it was left by another asyncio task than the one that entered it")

    def _left_wrongly(self: Any, how: str) -> NoReturn:
        raise errors.FailedPrecondition(f"the scope of {self.pool!r} has ended, but {how}. Open a scope inside of what "
                                        "a thread or a task runs, and await nothing in it: a thread's tasks share its "
                                        "scopes")

    def __call__(self: Any, function: _Function) -> _Function:
        """Makes a function that runs in the scope. Each call has a scope of its own, on its own thread."""
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


if TYPE_CHECKING:
    Scope = PlainScope
else:
    Scope = fast.Scope if fast else PlainScope


class use_pool(Scope, Words):
    """Routes allocations into a pool: as a context manager, or as a decorator of functions.

        with commpool.use_pool(pool):
            model.step()

        @commpool.use_pool(pool, sizes=("1MiB", None), exhaustion="next_scope")
        def backward(): ...

    Args:
      pool: the pool that gets the allocations.
      device: the device that the program expects; refused if the pool is another device's.
      stream: catches allocations for this stream on any thread, instead of this thread's allocations.
      sizes: (lower, upper) limit of the sizes that it catches; both are included, None is no limit.
      exhaustion: "next_scope" passes what the pool cannot serve to the next outer scope, at last to the default pool.
      filter: "thread" (the default), "stream", or "process": every allocation.

    Scopes nest: if several catch an allocation, the one that began last wins. One object is one scope at a time; it can
    be used again. A scope must end on the thread, and in the asyncio task, that began it, innermost first; do not await
    inside. If it is left in another way, it has ended, and raises FailedPrecondition.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, pool: Pool, *, device: Optional[Device] = None, stream: Stream = None,
                     sizes: Optional[options.SizeRange] = None, exhaustion: options.ExhaustionWord = "error",
                     filter: Optional[options.FilterWord] = None) -> None: ...


def empty(shape: Union[int, tuple[int, ...]], dtype: Any = "float32", *, device: Optional[Device] = None,
          stream: Stream = None, pool: Optional[Pool] = None) -> Array:
    """An array of the pool, or of the innermost scope that catches it, else of the device's default pool.

    Args:
      shape: a length, or several.
      dtype: "float32", or NumPy's or torch's object of that name.
      device: None is the device of the stream; for the default stream the thread's current one.
      stream: as in `allocate`.
      pool: the pool to take memory from, whatever scopes are open.
    """
    if pool is None:
        return arrays.made(blocks.allocate, shape, dtype, device, stream)
    checked(pool, "empty")
    if device is not None and device_number(device) != pool.device:
        raise errors.InvalidArgument(f"pool {pool.name} is of device {pool.device}, not {device}")
    return pool.empty(shape, dtype, stream=stream)


@contextlib.contextmanager
def capture(pool: Pool, stream: Stream) -> Iterator[Pool]:
    """Announces that a stream is captured. The pool then serves it from a part that belongs to the graph.

    Begin it after the capture of the stream begins. Registered and symmetric pools serve what was reserved before;
    other pools grow.
    """
    announced = library.capture_begin(checked(pool, "capture").handle, stream_handle(stream))
    try:
        yield pool
    finally:
        library.capture_end(announced)
