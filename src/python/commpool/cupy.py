"""CuPy's arrays in pools.

    import cupy
    import commpool.cupy

    pool = commpool.Pool("shared")
    cupy.cuda.set_allocator(commpool.cupy.allocator(pool))  # of all threads; cupy.cuda.using_allocator(...) of one

Arrays follow the stream order of CuPy's current stream, as in CuPy's own pool. If you use one on another stream, order
the two streams. If the array may be freed before that work is done, tell commpool with
`commpool.record_stream(array.data.ptr, stream)`.
"""

from __future__ import annotations

from typing import Any, Callable, Literal, Optional

from . import _adapters, errors
from ._library import fast, last_error
from .pool import Pool

_cupy = _adapters.needed("cupy")

PathWord = Literal["auto", "c", "python"]
Allocator = Callable[[int], Any]


class OutOfMemory(errors.OutOfMemory, _cupy.cuda.memory.OutOfMemoryError):  # type: ignore[misc,name-defined]
    """A pool is out of memory. It is commpool's exception and CuPy's."""

    def __init__(self, message: str = "") -> None:
        MemoryError.__init__(self, message)
        self.message = message


def allocator(pool: Optional[Pool] = None, *, path: PathWord = "auto") -> Allocator:
    """Makes a function for `cupy.cuda.set_allocator` and `using_allocator`.

    Args:
      pool: the pool for arrays. None: what the calling thread's scopes (`use_pool`) catch, else the default pool of
        CuPy's current device.
      path: "c" calls no Python for an array, but needs CuPy's current stream as a C function. "python" asks for the
        stream in Python. "auto" is "c" if this CuPy has that function.

    The allocator keeps the pool's handle. Arrays may outlive the pool; new ones are then refused.

    Raises:
      NotSupported: path="c", but CuPy has no such function, or the module in C is missing.
    """
    _adapters.checked(pool)
    if path not in ("auto", "c", "python"):
        raise errors.InvalidArgument(f"path {path!r} is none of auto, c, python")
    reason = "" if path == "python" else why_not_c()
    if path == "c" and reason:
        raise errors.NotSupported(reason)
    return _python_allocator(pool) if path == "python" or reason else _c_allocator(pool)


def why_not_c() -> str:
    """Why the allocators are Python's; empty if they are C's."""
    if fast is None:
        return "the module commpool._fast is not built, or is of another library than the one that is loaded"
    if _current_stream() is None:
        return f"CuPy {_cupy.__version__} has no get_current_stream_ptr in C"
    return ""


def _current_stream() -> Any:
    """CuPy's capsule of its current-stream function, if that has the one known signature."""
    try:
        from cupy_backends.cuda import stream  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    capsule = getattr(stream, "__pyx_capi__", {}).get("get_current_stream_ptr")
    return capsule if capsule is not None and '"intptr_t (void)"' in repr(capsule) else None


def _c_allocator(pool: Optional[Pool]) -> Allocator:
    parameter, allocate, free, owner = fast.cupy_source(pool.handle if pool else 0, pool.device if pool else 0,
                                                        _current_stream())
    malloc = _cupy.cuda.CFunctionAllocator(parameter, allocate, free, (owner, pool)).malloc

    def fail(status: int) -> None:
        failure = errors.failure(status, last_error())
        _check_device(pool)
        raise _failure(failure)

    return fast.cupy_allocator(malloc, fail)  # type: ignore[no-any-return]


def _python_allocator(pool: Optional[Pool]) -> Allocator:
    def allocate(nbytes: int, device: int) -> int:
        _check_device(pool)
        stream = int(_cupy.cuda.get_current_stream().ptr)
        try:
            return _adapters.allocate(pool, device, nbytes, stream)
        except errors.CommpoolError as error:
            raise _failure(error) from error.__cause__

    def free(pointer: int, device: int) -> None:
        _adapters.give_back("CuPy", pointer)

    return _cupy.cuda.PythonFunctionAllocator(allocate, free).malloc  # type: ignore[no-any-return]


def _check_device(pool: Optional[Pool]) -> None:
    device = _cupy.cuda.runtime.getDevice()
    if pool is not None and device != pool.device:
        raise errors.InvalidArgument(f"pool {pool.name} is of device {pool.device}, and CuPy's current one is {device}")


def _failure(error: BaseException) -> BaseException:
    if not isinstance(error, errors.OutOfMemory):
        return error
    failure = OutOfMemory(error.message)
    failure.code = error.code
    failure.__cause__ = error.__cause__
    return failure
