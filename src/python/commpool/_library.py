"""Finds libcommpool.so.0, asks its version, and binds its functions."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, Callable

from . import _abi, errors

_SONAME = "libcommpool.so.0"
_VARIABLE = "COMMPOOL_LIBRARY"


class Library:
    """The library's functions, by their names in commpool.h."""

    def __init__(self, path: str) -> None:
        """Loads the library at a path, or by its name where the system finds it.

        Raises:
          OSError: it cannot be loaded.
          ImportError: it is of another version than this package needs.
        """
        waiting, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
        _check_version(path, quick)
        self.path = path
        for handle, functions in ((waiting, _abi.WAITING), (quick, _abi.QUICK)):
            for name, (result, arguments) in functions.items():
                function = getattr(handle, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"commpool.h has no {name}, or this package does not bind it")

    def address(self, name: str) -> int:
        """Where a function is, for code in C."""
        return ctypes.cast(getattr(self, name), ctypes.c_void_p).value or 0


def _text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _check_version(path: str, library: ctypes.PyDLL) -> None:
    if not hasattr(library, "commpool_version"):
        raise ImportError(f"{path} is no commpool library, or older than 0.2: it does not tell its version")
    version = int(library.commpool_version())
    if version // 100 != _abi.VERSION // 100:
        raise ImportError(f"{path} is commpool {_text(version)}, and this package is of {_text(_abi.VERSION)}, which "
                          "needs the same minor version: install both from one wheel, or name another library in "
                          f"{_VARIABLE}")


def _candidates() -> list[str]:
    asked = os.environ.get(_VARIABLE)
    if asked:
        return [asked]
    return [str(pathlib.Path(__file__).parent / "lib" / _SONAME), _SONAME]


def _load() -> Library:
    reasons = []
    for path in _candidates():
        try:
            return Library(path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(f"commpool's library was not found: {'; '.join(reasons)}. The wheel brings it; where it is "
                      f"installed elsewhere, {_VARIABLE} names the file {_SONAME}")


def _load_fast(loaded: Library) -> Any:
    """The module in C; None where it is not built, or would call another library than the one that was loaded."""
    try:
        from . import _fast
    except ImportError:
        return None
    return _fast if _fast.address() == loaded.address("commpool_scope_begin") else None


library = _load()
fast: Any = _load_fast(library)


def check(status: int) -> None:
    """Raises the exception of a status that this thread's last call returned."""
    if status != 0:
        raise errors.failure(status, library.commpool_last_error().decode("utf-8", "replace"))


def listed(call: Callable[..., int], kind: Any) -> list[Any]:
    """The structs that `call(entries, entry_bytes, capacity, count)` lists: asked again until all have room."""
    capacity, count = 0, ctypes.c_size_t()
    while True:
        entries = (kind * capacity)()
        check(call(entries, ctypes.sizeof(kind), capacity, ctypes.byref(count)))
        if count.value <= capacity:
            return list(entries[:count.value])
        capacity = count.value
