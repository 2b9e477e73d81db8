"""Finds libcommpool.so.0, asks its version, and binds its functions."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any, Callable, NoReturn, TypeVar

from . import _abi, errors

_SONAME = "libcommpool.so.0"
_VARIABLE = "COMMPOOL_LIBRARY"
# The module in C, as a file for ctypes.
FAST = str(pathlib.Path(__file__).parent / "_fast.abi3.so")
# These functions take some nanoseconds; they neither wait nor call back, so they keep the GIL. All others may wait for
# ranks, the device, or a lock whose holder runs a Python function.
QUICK = frozenset({"commpool_last_error", "commpool_version", "commpool_record_stream",
                   "commpool_scope_begin", "commpool_scope_end", "commpool_pool_lost_rank", "commpool_window_of",
                   "commpool_block_of", "commpool_peers_of"})

_Function = TypeVar("_Function")

_keep = ctypes.PyDLL(None).Py_IncRef
_keep.argtypes, _keep.restype = [ctypes.py_object], None


def for_ever(function: _Function) -> _Function:
    """Keeps a ctypes function, and what it refers to, for the life of the process, because C may call it at the very
    end.

    A name in a module would not keep it: Python deletes those in no fixed order while it ends, and blocks that are
    freed after that would call a deleted function.
    """
    _keep(function)
    return function


class Owner:
    """An object that owns something of the library. A copy would be a second owner, and would free it too early, so it
    cannot be copied or pickled. It raises TypeError, as Python does for its own objects of this kind.
    """

    __slots__ = ()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} belongs to this process and this object: it is neither copied nor pickled")


class Library:
    """The library's functions. `commpool_pool_destroy`, as in commpool.h, returns a status. `pool_destroy` raises the
    error of that status, and returns the outputs, which follow the given arguments in C.
    """

    def __init__(self, path: str) -> None:
        """Loads the library from a path, or by its name if the system finds it.

        Raises:
          OSError: it cannot be loaded.
          ImportError: this package needs another version.
        """
        waiting, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
        _check_version(path, quick)
        self.path = path
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(quick if name in QUICK else waiting, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
            setattr(self, name[len("commpool_"):], _raising(function))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"commpool.h has no {name}")

    def address(self, name: str) -> int:
        """The address of a function, for code in C."""
        return ctypes.cast(getattr(self, name), ctypes.c_void_p).value or 0


def version_text(version: int) -> str:
    """ "0.12.0", from the number that commpool_version returns."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _check_version(path: str, library: ctypes.PyDLL) -> None:
    if not hasattr(library, "commpool_version"):
        raise ImportError(f"{path} is no commpool library, or older than 0.2: it does not tell its version")
    version = int(library.commpool_version())
    if version // 100 != _abi.VERSION // 100:
        raise ImportError(f"{path} is commpool {version_text(version)}, and this package is of "
                          f"{version_text(_abi.VERSION)}, which needs the same minor version: install both from one "
                          f"wheel, or name another library in {_VARIABLE}")


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
    """The module in C. None if it is not built, or if it would call another library than the loaded one."""
    try:
        from . import _fast
    except ImportError:
        return None
    return _fast if _fast.address() == loaded.address("commpool_scope_begin") else None


def text_of(text: Any) -> str:
    """The text of a C string; empty for null."""
    return (text or b"").decode("utf-8", "replace")


def last_error() -> str:
    """The sentence of this thread's last failed call."""
    return text_of(library.commpool_last_error())


def check(status: int) -> None:
    """Raises the exception of a status that this thread's last call returned."""
    if status != 0:
        raise errors.failure(status, last_error())


def _raising(function: Any) -> Callable[..., Any]:
    """Makes a function that passes its arguments to C, and returns the outputs that follow them, if there are any."""
    kinds: list[Any] = [getattr(kind, "_type_", None) for kind in function.argtypes]

    def call(*arguments: Any) -> Any:
        outputs = [kind() for kind in kinds[len(arguments):]]
        errors.raised.exception = None
        check(function(*arguments, *map(ctypes.byref, outputs)))
        return outputs[0].value if len(outputs) == 1 else [output.value for output in outputs]

    return call


def listed(kind: Any, call: Callable[..., int], *arguments: Any) -> list[Any]:
    """The structs that a call writes behind its arguments. It asks again until there is room for all."""
    capacity = 0
    while True:
        entries = (kind * capacity)()
        count = call(*arguments, entries, ctypes.sizeof(kind), capacity)
        if count <= capacity:
            return list(entries[:count])
        capacity = count


def value_of(kind: Any, struct: Any) -> Any:
    """A struct of the library as a Python value. The type `kind` has the same fields in the same order."""
    return kind(*[_plain(getattr(struct, field[0])) for field in struct._fields_ if field[0] != "struct_bytes"])


def _plain(field: Any) -> Any:
    if isinstance(field, _abi.CCounter):
        return value_of(_abi.Counter, field)
    return text_of(field) if isinstance(field, bytes) else 0 if field is None else field  # None: a null pointer


library = _load()
fast: Any = _load_fast(library)
