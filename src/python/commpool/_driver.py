"""The few driver calls that the package makes itself: to let a stream wait for another, to ask whether one captures, to
trim a memory pool, and to find the current device, that at a PCI address, and whether there is one of a number.

The driver is the one that the library has opened, the emulator's included.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from typing import Any, Iterator, NamedTuple, Optional

from .errors import DriverError, FailedPrecondition

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # their handles; 0 is the legacy one too
_EVENT_WITHOUT_TIMING, _INVALID_DEVICE = 2, 101
_CAPTURE_ERRORS = range(900, 909)  # CUDA_ERROR_STREAM_CAPTURE_*
_POOL_RESERVED, _POOL_USED = 5, 7  # CU_MEMPOOL_ATTR_*_MEM_CURRENT


@functools.lru_cache(maxsize=None)  # once it is open it stays; a failure is not kept
def _driver() -> Any:
    # Opens it by its soname, only if it is loaded: the library has opened it from wherever it is.
    return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _call(driver: Any, name: str, *arguments: Any) -> None:
    result = getattr(driver, name)(*arguments)
    if result != 0:
        raise DriverError(f"{name} failed with {result}")


@contextlib.contextmanager
def _in_context(driver: Any, context: ctypes.c_void_p) -> Iterator[Any]:
    """The driver, while the context is current."""
    before = ctypes.c_void_p()
    _call(driver, "cuCtxGetCurrent", ctypes.byref(before))
    _call(driver, "cuCtxSetCurrent", context)
    try:
        yield driver
    finally:
        _call(driver, "cuCtxSetCurrent", before)


@contextlib.contextmanager
def on_device(device: int) -> Iterator[Any]:
    """The driver, while the device's primary context is current."""
    driver, context = _driver(), ctypes.c_void_p()
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
    try:
        with _in_context(driver, context):
            yield driver
    finally:
        _call(driver, "cuDevicePrimaryCtxRelease_v2", ctypes.c_int(device))


class Place(NamedTuple):
    """A stream, and where its handle means it: a default stream is one of a device, and 2 one of a thread too."""

    handle: int
    device: int = 0  # of a default stream
    thread: int = 0  # of the thread's own

    @classmethod
    def of(cls, handle: int, device: int) -> Place:
        """Of a handle in this thread, where a default stream is the device's."""
        if handle > PER_THREAD_STREAM:
            return cls(handle)
        return cls(handle or LEGACY_STREAM, device, threading.get_ident() if handle == PER_THREAD_STREAM else 0)

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """The driver, while the stream's context is current."""
        if self.handle <= PER_THREAD_STREAM:
            return on_device(self.device)
        driver, context = _driver(), ctypes.c_void_p()
        _call(driver, "cuStreamGetCtx", ctypes.c_void_p(self.handle), ctypes.byref(context))
        return _in_context(driver, context)


def make_wait(waiting: Place, awaited: Place) -> None:
    """Makes later work of a stream begin after all work that another one has now. Where one of them is another thread's
    own stream the host waits, because no handle means it here.

    Raises:
      FailedPrecondition: one of the streams captures alone, or the driver cannot say it of one: nothing was done.
    """
    captured = []
    for stream in (waiting, awaited):
        with stream.current() as driver:
            captured.append(_captures(driver, stream.handle))
    if captured[0] is None or captured[0] != captured[1]:
        raise FailedPrecondition(f"a stream captures: for stream {waiting.handle:#x} to wait for {awaited.handle:#x} "
                                 "would break the capture, where not both are in it; let it wait before the capture "
                                 "begins")
    with awaited.current() as driver, contextlib.ExitStack() as undo:
        if {waiting.thread, awaited.thread} - {0, threading.get_ident()}:
            _call(driver, "cuCtxSynchronize")
            return
        event = ctypes.c_void_p()
        _call(driver, "cuEventCreate", ctypes.byref(event), ctypes.c_uint(_EVENT_WITHOUT_TIMING))
        undo.callback(_call, driver, "cuEventDestroy_v2", event)
        _call(driver, "cuEventRecord", event, ctypes.c_void_p(awaited.handle))
        with waiting.current():
            _call(driver, "cuStreamWaitEvent", ctypes.c_void_p(waiting.handle), event, ctypes.c_uint(0))


def captures(device: int, *streams: int) -> bool:
    """Whether work of one of the streams goes into a graph instead of to the device. True too where a capture keeps the
    driver from saying."""
    with on_device(device) as driver:
        return any(_captures(driver, stream) is not False for stream in streams)


def _captures(driver: Any, stream: int) -> Optional[bool]:
    """None where a capture keeps the driver from saying, as of stream 0 while another one captures."""
    status = ctypes.c_int()
    result = driver.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    if result in _CAPTURE_ERRORS:
        return None
    if result != 0:
        raise DriverError(f"cuStreamIsCapturing of stream {stream:#x} failed with {result}: was the stream destroyed?")
    return status.value != 0


def synchronize(device: int) -> None:
    """Waits for all work of a device."""
    with on_device(device) as driver:
        _call(driver, "cuCtxSynchronize")


def current_device() -> Optional[int]:
    """The device of this thread's current context; None without a context."""
    device = ctypes.c_int()
    with contextlib.suppress(OSError):  # no driver is open
        return device.value if _driver().cuCtxGetDevice(ctypes.byref(device)) == 0 else None
    return None


def lacks_device(device: int) -> bool:
    """Whether the driver says that there is no device of that number; it says nothing before it is open."""
    with contextlib.suppress(OSError):
        return bool(_driver().cuDeviceGet(ctypes.byref(ctypes.c_int()), ctypes.c_int(device)) == _INVALID_DEVICE)
    return False


def device_at(address: str) -> int:
    """The device at a PCI address."""
    found, device = ctypes.create_string_buffer(128), 0
    while True:  # beyond the last device the call fails
        _call(_driver(), "cuDeviceGetPCIBusId", found, ctypes.c_int(len(found)), ctypes.c_int(device))
        if found.value.decode() == address:
            return device
        device += 1


def unused_bytes(pool: int) -> int:
    """The bytes that a memory pool of the driver has reserved and not given out."""
    driver, numbers = _driver(), []
    for attribute in (_POOL_RESERVED, _POOL_USED):
        figure = ctypes.c_uint64()
        _call(driver, "cuMemPoolGetAttribute", ctypes.c_void_p(pool), ctypes.c_int(attribute), ctypes.byref(figure))
        numbers.append(figure.value)
    return numbers[0] - numbers[1]


def trim(pool: int) -> None:
    """Gives the unused memory of a driver's memory pool back."""
    _call(_driver(), "cuMemPoolTrimTo", ctypes.c_void_p(pool), ctypes.c_size_t(0))
