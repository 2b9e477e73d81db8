"""Caches of other libraries, which give memory when a pool finds none.

    import commpool.holders

    commpool.holders.add_torch()
    commpool.holders.add_cupy()

A thread of this module asks the library. An allocating thread waits for it for a bounded time, because it may hold the
GIL, or be inside that library's own allocator. If the library cannot begin in time it is skipped, and `skipped` counts
that. If it began and does not end in time, `overtime` counts that; only this allocation misses what it gives back.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import sys
import threading
from typing import Any, Callable, Optional

from . import _abi, _driver
from ._library import FAST
from .runtime import MemoryHolder, answer_of

_BEGIN_MS = 100
_DONE_MS = 10000


def _slots() -> Any:
    """The part in C: the functions of `_holder.cc`. One of them waits without the GIL."""
    waiting, quick = ctypes.CDLL(FAST), ctypes.PyDLL(FAST)  # the first without the GIL, the second with it
    setattr(quick, "commpool_slot_take", waiting.commpool_slot_take)
    slot, number = ctypes.POINTER(RequestSlot), ctypes.c_uint64
    for name, result, arguments in (("new", slot, [number, number]), ("take", ctypes.c_int, [slot]),
                                    ("begin", ctypes.c_int, [slot]), ("finish", None, [slot, number]),
                                    ("close", None, [slot])):
        function = getattr(quick, f"commpool_slot_{name}")
        function.restype, function.argtypes = result, arguments
    return quick


class RequestSlot(ctypes.Structure):
    """The place of requests, as in `_holder.cc`. Python reads only these fields."""

    _fields_ = [("release", ctypes.c_int), ("device", ctypes.c_int), ("bytes", ctypes.c_uint64),
                ("skipped", ctypes.c_uint64), ("overtime", ctypes.c_uint64)]


class LibraryHolder(MemoryHolder):
    """Another library's cache as a free-memory callback. Its functions may need the GIL and the library's locks."""

    def __init__(self, name: str, cached_bytes: Callable[[int], int], release: Callable[[int], Any], *,
                 begin_ms: int = _BEGIN_MS, done_ms: int = _DONE_MS) -> None:
        """Adds it.

        Args:
          name: for the error's table.
          cached_bytes: `cached_bytes(device)` returns what the library holds and does not use. It takes the library's
            lock, so it does not return while another thread has that lock.
          release: `release(device)` gives that back to the driver. Neither function may call commpool.
          begin_ms: how long an allocation waits for Python and for cached_bytes.
          done_ms: how long it then waits for release.
        """
        self._slots = _slots()
        self.asked, self.released_bytes = 0, 0
        self._cached_bytes, self._release = cached_bytes, release
        self._slot = self._slots.commpool_slot_new(begin_ms, done_ms)
        self._add(name, _abi.CachedBytes(("commpool_slot_cached_bytes", self._slots)),
                  _abi.Release(("commpool_slot_release", self._slots)), ctypes.addressof(self._slot.contents))
        threading.Thread(target=self._serve, name=f"commpool holder of {name}", daemon=True).start()
        atexit.register(self.remove)

    @property
    def skipped(self) -> int:
        """The number of requests that Python or the library could not begin in time."""
        return int(self._slot.contents.skipped)

    @property
    def overtime(self) -> int:
        """The number of requests that began, but took longer than an allocation waits."""
        return int(self._slot.contents.overtime)

    def remove(self) -> None:
        """Removes it: nobody asks the library any more."""
        self._slots.commpool_slot_close(self._slot)
        super().remove()
        atexit.unregister(self.remove)

    def _serve(self) -> None:
        while self._slots.commpool_slot_take(self._slot):
            request = self._slot.contents
            before = self._ask(self._cached_bytes, request.device)
            if self._slots.commpool_slot_begin(self._slot):
                given = self._give(request.device, before) if request.release else before
                self._slots.commpool_slot_finish(self._slot, given)

    def _give(self, device: int, before: int) -> int:
        self.asked += 1
        if before:
            self._ask(self._release, device)
        given = max(0, before - self._ask(self._cached_bytes, device)) if before else 0
        self.released_bytes += given
        return given

    def _ask(self, function: Callable[[int], Any], device: int) -> int:
        return answer_of(lambda: function(device) or 0)

    def __repr__(self) -> str:
        return (f"<commpool.holders.LibraryHolder {self.name!r}: asked {self.asked}, gave {self.released_bytes} bytes, "
                f"skipped {self.skipped}, overtime {self.overtime}>")


def add_torch() -> Optional[LibraryHolder]:
    """PyTorch's cache. Returns None while `commpool.torch` routes: its router offers that cache itself, in C++.

    A router that comes later takes over, because then PyTorch's functions count our pools, and call commpool.
    """
    torch = importlib.import_module("torch")

    def routed() -> bool:
        adapter = sys.modules.get("commpool.torch")
        return adapter is not None and bool(adapter.installed())

    if routed():
        return None

    def cached(device: int) -> int:
        if routed() or not torch.cuda.is_initialized() or device >= torch.cuda.device_count():
            return 0
        return int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))

    def release(device: int) -> None:
        if not routed():
            torch.cuda.empty_cache()

    return LibraryHolder("PyTorch's cache", cached, release)


def add_cupy(pool: Any = None) -> LibraryHolder:
    """A memory pool of CuPy's: `cupy.get_default_memory_pool()`, or another one that is not over commpool."""
    cupy = importlib.import_module("cupy")
    asked = pool if pool is not None else cupy.get_default_memory_pool()

    def cached(device: int) -> int:
        with cupy.cuda.Device(device):
            return int(asked.free_bytes())

    def release(device: int) -> None:
        with cupy.cuda.Device(device):
            asked.free_all_blocks()

    return LibraryHolder("CuPy's pool", cached, release)


def add_rmm() -> LibraryHolder:
    """What RMM's current resources can give back: pools of cudaMallocAsync that the program gave to RMM.

    Those are CudaAsyncViewMemoryResource, above or below adaptors. RMM's own pools and arenas never shrink, and Python
    cannot see the pool of a CudaAsyncMemoryResource: nobody asks them.
    """
    mr = importlib.import_module("rmm.mr")

    def pools(device: int) -> list[int]:
        found, resource = [], mr.get_per_device_resource(device)
        while resource is not None:
            if isinstance(resource, mr.CudaAsyncViewMemoryResource):
                found.append(int(resource.pool_handle()))
            resource = resource.get_upstream() if hasattr(resource, "get_upstream") else None
        return found

    def release(device: int) -> None:
        for pool in pools(device):
            _driver.trim(pool)

    return LibraryHolder("RMM's resources", lambda device: sum(map(_driver.unused_bytes, pools(device))), release)
