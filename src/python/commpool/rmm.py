"""RMM's buffers, and cuDF's, in pools.

    import rmm
    import commpool.rmm

    pool = commpool.Pool("shared")
    rmm.mr.set_current_device_resource(commpool.rmm.resource(pool))

RMM's Python package takes only Python functions, which need the GIL. If there is a C++ compiler, commpool compiles a
C++ resource that calls no Python: in seconds, once for the installed RMM. Programs in C++ use `commpool/mr.h`.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, Optional

from . import _adapters, _compile, _rmm_build, errors
from .handles import Device, known_device, stream_handle
from .pool import Pool

_mr = _adapters.needed("rmm.mr")

PathWord = Literal["auto", "c++", "python"]


class CompiledResource(_mr.DeviceMemoryResource):  # type: ignore[misc,name-defined]
    """A pool as RMM's resource, in C++."""


def resource(pool: Optional[Pool] = None, device: Device = 0, *, path: PathWord = "auto") -> Any:
    """An `rmm.mr.DeviceMemoryResource`. RMM's adaptors for statistics, limits and logs take it too.

    Args:
      pool: the pool for buffers. None: what the calling thread's scopes (`use_pool`) catch, else the default pool of
        `device`.
      device: only for None: the device that the resource is set for.
      path: "c++" is compiled, "python" calls Python. "auto" is "c++" if that is possible; else it warns and uses
        Python.

    RMM raises MemoryError where there is no memory. Buffers may outlive the pool.

    Raises:
      InvalidArgument: there is no such device.
      NotSupported: path="c++" where it cannot be compiled, with the reason.
    """
    _adapters.checked(pool)
    number = known_device(device) if pool is None else pool.device
    if path not in ("auto", "c++", "python"):
        raise errors.InvalidArgument(f"path {path!r} is none of auto, c++, python")
    if path != "python":
        try:
            return _rmm_build.placed(CompiledResource, pool, number)
        except _compile.CannotBuild as reason:
            if path == "c++":
                raise errors.NotSupported(str(reason)) from reason
            warnings.warn(f"commpool.rmm calls Python for each buffer: {reason}", RuntimeWarning, stacklevel=2)
    return _python_resource(pool, number)


def _python_resource(pool: Optional[Pool], device: int) -> Any:
    def allocate(nbytes: int, stream: Any) -> int:
        return _adapters.allocate(pool, device, nbytes, stream_handle(stream)) if nbytes else 0

    def free(pointer: int, nbytes: int, stream: Any) -> None:
        if pointer:
            _adapters.give_back("RMM", pointer, pool, stream_handle(stream))

    return _mr.CallbackMemoryResource(allocate, free)
