"""Which driver commpool runs on, and what is true of a whole device."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from . import _abi
from . import options as words
from ._library import for_ever, library, listed, text_of, value_of, version_text
from .handles import Device, device_number
from .options import DriverWord, number_of
from .sizes import MOST_BYTES, Size, parse_size

_Holder = TypeVar("_Holder", bound="MemoryHolder")


class DriverCall(NamedTuple):
    """A function of the driver, how often it was called, and how long all of these calls took."""

    name: str
    calls: int
    microseconds: float


def initialize(driver: DriverWord = "cuda") -> None:
    """Opens the driver; optional, before anything else. COMMPOOL_DRIVER in the environment goes before `driver`.

    Raises:
      NotFound: there is none.
      FailedPrecondition: another one is open already.
    """
    library.initialize(number_of("driver", driver))


def library_version() -> str:
    """Of the library that runs, "0.5.0": of this package's minor version."""
    return version_text(library.commpool_version())


def driver_description() -> str:
    """"CUDA driver 13.0, 4 devices, NCCL 2.28.9"; empty before the first call that needs the driver."""
    return text_of(library.commpool_driver_description())


def measure_driver() -> None:
    """Counts and times the library's driver calls: before anything else."""
    library.measure_driver()


def driver_calls() -> list[DriverCall]:
    """The functions of the driver that were called so far, the dearest first."""
    return [value_of(DriverCall, call) for call in listed(_abi.CDriverCall, library.driver_calls)]


def set_device_limit(device: Device, limit: Optional[Size]) -> None:
    """The most that all pools of a device may reserve together; None for no limit."""
    library.set_device_limit(device_number(device), MOST_BYTES if limit is None else parse_size(limit, "limit"))


class MemoryHolder:
    """Another allocator of the process, asked when a device runs out of memory and named in the error.

    Its functions are called on an allocating thread while the holder is added, and must not call commpool. What they
    raise is reported as sys.unraisablehook does, and counts as 0.
    """

    def __init__(self, name: str = "other", *, cached_bytes: Optional[Callable[[int], int]] = None,
                 release: Optional[Callable[[int, int], int]] = None) -> None:
        """Adds it.

        Args:
          name: for the error's table.
          cached_bytes: `cached_bytes(device)` is what it holds and does not use.
          release: `release(device, bytes)` gives at least as much back to the driver, if it can; returns how many.
        """
        self._add(name, _without_context(_abi.CachedBytes, cached_bytes), _without_context(_abi.Release, release))

    def _add(self, name: str, cached_bytes: Any, release: Any, context: Optional[int] = None) -> None:
        """By functions of C."""
        options = _abi.CHolderOptions()
        options.name, options.cached_bytes, options.release = words.text_of("name", name), cached_bytes, release
        options.context = context
        self.name, self._holder = name, library.add_holder(ctypes.byref(options))

    def remove(self) -> None:
        """Ends it, once no call of its functions is running any more."""
        if self._holder:
            library.remove_holder(self._holder)
            self._holder = 0

    def __enter__(self: _Holder) -> _Holder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def _without_context(kind: Any, function: Optional[Callable[..., int]]) -> Any:
    """For C; a null pointer for None."""
    return kind() if function is None else for_ever(kind(lambda *arguments: int(function(*arguments[:-1]))))
