"""The few calls of CUDA's driver that the package makes itself: one stream waits for another; a memory pool is trimmed;
which device is current.

The driver is the one that the library has opened, the emulator's included.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

from .errors import DriverError

_EVENT_WITHOUT_TIMING = 2
_POOL_RESERVED, _POOL_USED = 5, 7  # CU_MEMPOOL_ATTR_*_MEM_CURRENT


def _driver() -> Any:
    # By its soname, and only if it is loaded: the library has opened it from wherever it lies.
    return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def _call(driver: Any, name: str, *arguments: Any) -> None:
    result = getattr(driver, name)(*arguments)
    if result != 0:
        raise DriverError(f"{name} failed with {result}")


def make_wait(device: int, waiting: int, awaited: int) -> None:
    """Work that stream `waiting` gets from now on begins after what stream `awaited` has now."""
    driver = _driver()
    context, before, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    with contextlib.ExitStack() as undo:
        _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
        undo.callback(_call, driver, "cuDevicePrimaryCtxRelease_v2", ctypes.c_int(device))
        _call(driver, "cuCtxGetCurrent", ctypes.byref(before))
        _call(driver, "cuCtxSetCurrent", context)
        undo.callback(_call, driver, "cuCtxSetCurrent", before)
        _call(driver, "cuEventCreate", ctypes.byref(event), ctypes.c_uint(_EVENT_WITHOUT_TIMING))
        undo.callback(_call, driver, "cuEventDestroy_v2", event)
        _call(driver, "cuEventRecord", event, ctypes.c_void_p(awaited))
        _call(driver, "cuStreamWaitEvent", ctypes.c_void_p(waiting), event, ctypes.c_uint(0))


def has_context() -> bool:
    """Whether this thread has a current one."""
    with contextlib.suppress(OSError):  # no driver was opened so far
        return bool(_driver().cuCtxGetDevice(ctypes.byref(ctypes.c_int())) == 0)
    return False


def current_device() -> int:
    """That of this thread's current context; 0 where there is none, as CUDA's runtime has it."""
    device = ctypes.c_int()
    with contextlib.suppress(OSError):  # no driver was opened so far
        _driver().cuCtxGetDevice(ctypes.byref(device))  # what fails writes nothing
    return device.value


def unused_bytes(pool: int) -> int:
    """What a memory pool of the driver's has reserved and not given out."""
    driver, numbers = _driver(), []
    for attribute in (_POOL_RESERVED, _POOL_USED):
        figure = ctypes.c_uint64()
        _call(driver, "cuMemPoolGetAttribute", ctypes.c_void_p(pool), ctypes.c_int(attribute), ctypes.byref(figure))
        numbers.append(figure.value)
    return numbers[0] - numbers[1]


def trim(pool: int) -> None:
    """Gives back what a memory pool of the driver's does not use."""
    _call(_driver(), "cuMemPoolTrimTo", ctypes.c_void_p(pool), ctypes.c_size_t(0))
