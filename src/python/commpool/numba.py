"""Numba's device arrays in pools: an External Memory Manager.

    NUMBA_CUDA_MEMORY_MANAGER=commpool.numba python program.py   # in scopes, else in default pools

    import commpool.numba

    commpool.numba.use(pool)   # in a program, before its first use of CUDA; again for another pool at any time

Numba tells no stream. As with its own allocator, a program may use an array on any stream. So freed arrays are kept
until one wait for the device, which serves several arrays.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import weakref
from typing import Any, Callable, Optional

from . import _adapters, errors
from ._library import library
from .handles import Device, known_device
from .pool import Pool

_cuda = _adapters.needed("numba.cuda")
_driver = _cuda.cudadrv.driver

# The pool for each device's arrays. Scopes serve a device that is not here.
_pools: dict[int, Optional[Pool]] = {}


def use(pool: Optional[Pool], device: Device = 0) -> None:
    """Puts new arrays of a pool's device into the pool. None gives the arrays of `device` back to scopes.

    From now on this manager is Numba's.

    Raises:
      InvalidArgument: there is no such device.
      FailedPrecondition: Numba has another memory manager, and contexts that use it.
    """
    _adapters.checked(pool)
    number = known_device(device) if pool is None else pool.device
    if _driver._memory_manager is not MemoryManager:
        if _has_contexts():
            raise errors.FailedPrecondition("Numba uses CUDA already, with another memory manager: call use() before "
                                            "that, or set NUMBA_CUDA_MEMORY_MANAGER=commpool.numba")
        _cuda.set_memory_manager(MemoryManager)
    _pools[number] = pool


def _has_contexts() -> bool:
    devices = getattr(_driver.driver, "devices", {})
    return any(device.primary_context is not None for device in devices.values())


class _Frees:
    """Frees any number of blocks after one wait for the device."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._numbers = itertools.count(1)
        self._waited = 0
        self.left: collections.deque[tuple[int, int]] = collections.deque()  # Numba has forgotten them

    def note(self, pointer: int) -> tuple[int, int]:
        """Notes a block to free. Numba keeps the result until it calls this object."""
        return next(self._numbers), pointer

    __name__ = "commpool.free"  # the destructor's name in Numba's log

    def __call__(self, item: tuple[int, int]) -> None:
        self.left.append(item)
        self.free()

    def free(self) -> None:
        """Frees what Numba has let go: a wait that failed leaves some."""
        with contextlib.suppress(IndexError):  # none is left
            while True:
                item = self.left.popleft()
                try:
                    self._wait_for(item[0])
                except BaseException:
                    self.left.append(item)
                    raise
                _adapters.give_back("Numba", item[1])

    def _wait_for(self, number: int) -> None:
        if number > self._waited:
            before = next(self._numbers)  # what is noted from here on may be used by work that this wait does not see
            self._context.synchronize()
            self._waited = max(self._waited, before)  # not earlier: other threads free too, and a wait may fail


class MemoryManager(_cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc,name-defined]
    """Device memory of one context from commpool. Numba keeps its own pinned memory."""

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self._frees = _Frees(weakref.proxy(self.context) if self.context is not None else None)

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        # Numba decides by this how much it keeps before it frees.
        self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size: int) -> Any:
        device = int(self.context.device.id)
        pool = _pools.get(device)
        try:
            pointer = _adapters.allocate(pool, device, size, 0)
        except errors.OutOfMemory:
            if not self.deallocations and not self._frees.left:
                raise  # nothing would come back
            self.deallocations.clear()
            self._frees.free()
            pointer = _adapters.allocate(pool, device, size, 0)
        self.allocations[pointer] = pointer
        memory = _cuda.MemoryPointer(weakref.proxy(self.context), ctypes.c_void_p(pointer), size,
                                     finalizer=self._finalizer(pointer, size))
        # The legacy stream waits for what others do there still, and a stream of the program need not wait for it.
        self.context.get_legacy_default_stream().synchronize()
        return memory

    def _finalizer(self, pointer: int, size: int) -> Callable[[], None]:
        allocations, deallocations, frees = self.allocations, self.deallocations, self._frees

        def finalize() -> None:
            if allocations.pop(pointer, None) is not None:  # it is missing after a reset of the context
                deallocations.add_item(frees, frees.note(pointer), size)

        return finalize

    def reset(self) -> None:
        blocks = [pointer for pointer in self.allocations if self.allocations[pointer] == pointer]
        super().reset()
        for pointer in blocks:
            library.commpool_free(pointer)

    def get_memory_info(self) -> Any:
        """The driver's numbers: free memory of pools counts as used."""
        return _driver.NumbaCUDAMemoryManager.get_memory_info(self)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise errors.NotSupported("Numba shares arrays by CUDA's IPC of cudaMalloc memory, which a pool's blocks are "
                                  "not: share a copy that another memory manager made")


_numba_memory_manager = MemoryManager
