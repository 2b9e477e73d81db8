"""Memory by a program's own functions, from a shared library or from Python, with pools on top.

    backing = commpool.UserBacking.load("./alloc.so", allocate="my_alloc", free="my_free")
    pool = commpool.Pool("special", backing=backing)

The functions have the signatures of PyTorch's pluggable allocators: allocate(bytes, device, stream) returns an address,
and free(pointer, bytes, device, stream) takes it back. A Python function that takes fewer values gets the first ones:
allocate(bytes), free(pointer). They make a pool's segments, so they are called seldom. They must not call commpool.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import operator
import os
from typing import Any, Callable, Union

from . import _abi, errors
from ._library import for_ever

Function = Union[Callable[..., Any], int]

_C_FUNCTION = _abi.UserAllocate.__mro__[1]  # ctypes' own class, of which every function's class is a subclass


class UserBacking:
    """Two functions that make and free segments: Python callables, ctypes functions, or addresses of C functions."""

    def __init__(self, allocate: Function, free: Function) -> None:
        """Takes the two functions.

        Args:
          allocate: returns the address of device memory, aligned to 512 bytes, as an integer or a ctypes pointer. None
            or 0 means out of memory. So does an exception, which becomes the cause of the OutOfMemory that the program
            sees. KeyboardInterrupt and SystemExit reach the program themselves.
          free: its exceptions go to sys.unraisablehook, and the memory counts as freed.
        """
        self.allocate = for_ever(_function(_abi.UserAllocate, allocate, _guarded_allocate))
        self.free = for_ever(_function(_abi.UserFree, free, _guarded_free))

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"], allocate: str = "allocate", free: str = "free") -> UserBacking:
        """Takes the functions from a shared library, by their names there.

        Raises:
          NotFound: the library, or one of the functions, is not there.
        """
        try:
            library = ctypes.CDLL(os.fspath(path))
            functions = [getattr(library, name) for name in (allocate, free)]
        except (OSError, AttributeError) as error:
            raise errors.NotFound(f"a user backing of {os.fspath(path)}: {error}") from error
        return cls(*functions)


def _function(kind: Any, function: Function, guard: Callable[[Any], Any]) -> Any:
    if isinstance(function, int):
        return kind(function)
    if isinstance(function, _C_FUNCTION):
        return ctypes.cast(for_ever(function), kind)  # type: ignore[arg-type]
    if not callable(function):
        raise errors.InvalidArgument(f"{function!r} is no function of a user backing")
    return kind(guard(function))


def _first_values(function: Callable[..., Any], names: str) -> int:
    """How many of a call's values the function takes: the first ones, as many as it has places for.

    Raises:
      InvalidArgument: it cannot be called with any of them.
    """
    most = len(names.split(", "))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return most  # it is written in C: nobody can tell
    for count in range(most, -1, -1):
        with contextlib.suppress(TypeError):
            signature.bind(*range(count))
            return count
    raise errors.InvalidArgument(f"{function!r} of a user backing cannot be called with {names}, nor with the first of "
                                 f"them: it takes {signature}")


def _guarded_allocate(function: Callable[..., Any]) -> Callable[..., int]:
    taken = _first_values(function, "bytes, device, stream")

    def allocate(count: int, device: int, stream: Any, _context: Any) -> int:
        try:
            errors.raised.exception = None  # what an earlier attempt raised says nothing about this one
            made = function(*(count, device, stream or 0)[:taken])
            return operator.index(getattr(made, "value", made) or 0)  # a ctypes pointer has a value, which may be None
        except BaseException as error:  # no exception may pass through C
            errors.raised.exception = error
            return 0

    return allocate


def _guarded_free(function: Callable[..., Any]) -> Callable[..., None]:
    taken = _first_values(function, "pointer, bytes, device, stream")

    def free(pointer: Any, count: int, device: int, stream: Any, _context: Any) -> None:
        # ctypes gives an exception to sys.unraisablehook
        function(*(pointer or 0, count, device, stream or 0)[:taken])

    return free
