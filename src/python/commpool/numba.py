"""Numba's device arrays in pools: an External Memory Manager.

    NUMBA_CUDA_MEMORY_MANAGER=commpool.numba python program.py   # in scopes, else in default pools

    import commpool.numba

    commpool.numba.use(pool)   # in a program, before its first use of CUDA; again for another pool at any time

Numba tells no stream. As with its own allocator an array may be used on any stream: what is freed is kept until the
device has been waited for, once for several arrays.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, Optional

from . import _adapters, errors
from ._library import library
from .pool import Pool

_cuda = _adapters.needed("numba.cuda")
_driver = _cuda.cudadrv.driver

# Whose memory each device's arrays get; a device that is not here takes what scopes catch.
_pools: dict[int, Optional[Pool]] = {}


def use(pool: Optional[Pool], device: int = 0) -> None:
    """Puts new arrays of a pool's device into it; None gives those of `device` back to scopes.

    The manager is Numba's from now on.

    Raises:
      FailedPrecondition: Numba has another memory manager, and contexts that use it.
    """
    _adapters.checked(pool)
    if _driver._memory_manager is not MemoryManager:
        if _has_contexts():
            raise errors.FailedPrecondition("Numba uses CUDA already, with another memory manager: call use() before "
                                            "that, or set NUMBA_CUDA_MEMORY_MANAGER=commpool.numba")
        _cuda.set_memory_manager(MemoryManager)
    _pools[pool.device if pool is not None else device] = pool


def _has_contexts() -> bool:
    devices = getattr(_driver.driver, "devices", {})
    return any(device.primary_context is not None for device in devices.values())


class _Frees:
    """Gives blocks back behind one wait for the device, however many they are."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._noted = 0
        self._waited = 0

    def note(self, pointer: int) -> tuple[int, int]:
        """What Numba keeps until it calls this."""
        self._noted += 1
        return self._noted, pointer

    __name__ = "commpool.free"  # of a destructor, for Numba's log

    def __call__(self, item: tuple[int, int]) -> None:
        number, pointer = item
        if number > self._waited:
            self._waited = self._noted
            self._context.synchronize()
        _adapters.give_back("Numba", pointer)


class MemoryManager(_cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc,name-defined]
    """Device memory of one context by commpool; pinned memory stays Numba's."""

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self._frees = _Frees(weakref.proxy(self.context) if self.context is not None else None)

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        # How much Numba keeps back before it frees is a part of this.
        self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size: int) -> Any:
        device = int(self.context.device.id)
        pool = _pools.get(device)
        try:
            pointer = _adapters.allocate(pool, device, size, 0)
        except errors.OutOfMemory:
            self.deallocations.clear()
            pointer = _adapters.allocate(pool, device, size, 0)
        self.allocations[pointer] = pointer
        return _cuda.MemoryPointer(weakref.proxy(self.context), ctypes.c_void_p(pointer), size,
                                   finalizer=self._finalizer(pointer, size))

    def _finalizer(self, pointer: int, size: int) -> Callable[[], None]:
        allocations, deallocations, frees = self.allocations, self.deallocations, self._frees

        def finalize() -> None:
            if allocations.pop(pointer, None) is not None:  # else the context was reset
                deallocations.add_item(frees, frees.note(pointer), size)

        return finalize

    def reset(self) -> None:
        blocks = [pointer for pointer in self.allocations if self.allocations[pointer] == pointer]
        super().reset()
        for pointer in blocks:
            library.commpool_free(pointer)

    def get_memory_info(self) -> Any:
        """The driver's: free memory of pools counts as used."""
        return _driver.NumbaCUDAMemoryManager.get_memory_info(self)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise errors.NotSupported("Numba shares arrays by CUDA's IPC of cudaMalloc memory, which a pool's blocks are "
                                  "not: share a copy that another memory manager made")


_numba_memory_manager = MemoryManager
