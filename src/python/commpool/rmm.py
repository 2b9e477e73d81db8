"""RMM's buffers, and cuDF's, in pools.

    import rmm
    import commpool.rmm

    pool = commpool.Pool("shared")
    rmm.mr.set_current_device_resource(commpool.rmm.resource(pool))

Through Python functions, with the GIL: it is what RMM's package offers. Programs in C++ have `commpool/mr.h`, which
costs no Python.
"""

from __future__ import annotations

from typing import Any, Optional

from . import _adapters
from .handles import stream_handle
from .pool import Pool

_mr = _adapters.needed("rmm.mr")


def resource(pool: Optional[Pool] = None, device: int = 0) -> Any:
    """An `rmm.mr.DeviceMemoryResource`, also for RMM's adaptors: statistics, limits, logs.

    Args:
      pool: whose memory buffers get. None is what the calling thread's scopes (`use_pool`) catch, else the default pool
        of `device`.
      device: then, the one that the resource is set for.

    RMM raises MemoryError where there is no memory. Buffers may outlive the pool.
    """
    _adapters.checked(pool)
    number = pool.device if pool is not None else device

    def allocate(nbytes: int, stream: Any) -> int:
        return _adapters.allocate(pool, number, nbytes, stream_handle(stream)) if nbytes else 0

    def free(pointer: int, nbytes: int, stream: Any) -> None:
        if pointer:
            _adapters.give_back("RMM", pointer, pool, stream_handle(stream))

    return _mr.CallbackMemoryResource(allocate, free)
