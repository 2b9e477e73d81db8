"""Which driver commpool runs on, and settings of a whole device."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from . import _abi
from . import options as words
from ._library import for_ever, library, listed, value_of, version_text
from .errors import InvalidArgument
from .handles import Device, device_number
from .options import DriverWord, number_of
from .sizes import MOST_BYTES, Size, parse_size
from .statistics import settings_of

_Holder = TypeVar("_Holder", bound="MemoryHolder")
# The C functions of holders, by holder, while these are added: C may call them at the very end.
_added: dict[int, Any] = for_ever({})


class DriverCall(NamedTuple):
    """A driver function: the number of its calls, and their time in all."""

    name: str
    calls: int
    microseconds: float


def initialize(driver: DriverWord = "cuda", *, measure: bool = False) -> None:
    """Opens the driver. The call is optional, and comes before all others. COMMPOOL_DRIVER overrides `driver`.

    Args:
      measure: the library's driver calls are counted and timed, for `driver_calls`.

    Raises:
      NotFound: there is none.
      FailedPrecondition: another one is open already, or one that is not measured.
    """
    library.initialize(number_of("driver", driver), int(bool(measure)))


def library_version() -> str:
    """The version of the library that runs, such as "0.12.0". It has this package's minor version."""
    return version_text(library.commpool_version())


def driver_description() -> str:
    """A text such as "CUDA driver 13.0, 4 devices, NCCL 2.28.9"; empty before the first call that needs the driver."""
    return settings_of(0)[0].value


def driver_calls() -> list[DriverCall]:
    """The driver functions that were called so far, after `initialize(measure=True)`; the most expensive come first."""
    return [value_of(DriverCall, call) for call in listed(_abi.CDriverCall, library.driver_calls)]


def set_device_limit(device: Device, limit: Optional[Size]) -> None:
    """Limits what all pools of a device may reserve together; None for no limit."""
    library.set_device_bound(device_number(device), number_of("device_bound", "limit"),
                             MOST_BYTES if limit is None else parse_size(limit, "limit"))


class BudgetUse(NamedTuple):
    """What pools of a budget reserve together on a device, the most that they ever did, and the limit, in bytes."""

    reserved: int
    peak: int
    limit: Optional[int]  # None: there is none


class Budget:
    """A limit on each device that several pools share, beside their own and the device's.

        cache = commpool.Budget("48GiB", name="kv")
        pages, scales = commpool.Pool("pages", budget=cache), commpool.Pool("scales", budget="kv")
        print(cache.use())
    """

    __slots__ = ("name",)

    def __init__(self, limit: Optional[Size], *, name: str) -> None:
        """Makes it, or gives the one of this name another limit; None only counts."""
        self.name = name
        self.set_limit(limit)

    def set_limit(self, limit: Optional[Size]) -> None:
        """What is reserved stays."""
        library.set_budget(words.text_of("name", self.name),
                           MOST_BYTES if limit is None else parse_size(limit, "limit"))

    def use(self, device: Device = 0) -> BudgetUse:
        """On one device."""
        reserved, peak, limit = library.budget_use(device_number(device), words.text_of("name", self.name))
        return BudgetUse(reserved, peak, None if limit == MOST_BYTES else limit)

    def __repr__(self) -> str:
        return f"Budget(name={self.name!r})"


def set_headroom(headroom: Optional[Size], device: Device = 0) -> None:
    """Says what pools leave to others of a device's memory: NCCL, graphs, libraries; None or 0 for nothing.

    Where growth would leave less, idle memory of pools goes back first; then it is OutOfMemory. `reclaim` and `trim`
    give back what is lacking. A wish, no reservation: another process may take the memory meanwhile.
    """
    library.set_device_bound(device_number(device), number_of("device_bound", "headroom"),
                             0 if headroom is None else parse_size(headroom, "headroom"))


class MemoryHolder:
    """A free-memory callback: another allocator of the process, which commpool asks when a device runs out of memory,
    and names in the error.

    While it is added, an allocating thread calls its functions, which must not call commpool. Their exceptions go to
    sys.unraisablehook, and count as 0.
    """

    def __init__(self, name: str = "other", *, cached_bytes: Optional[Callable[[int], int]] = None,
                 release: Optional[Callable[[int, int], int]] = None) -> None:
        """Adds it.

        Args:
          name: for the error's table.
          cached_bytes: `cached_bytes(device)` returns what the allocator holds and does not use.
          release: `release(device, bytes)` gives at least so much back to the driver, if it can, and returns the bytes.
        """
        self._add(name, _without_context(_abi.CachedBytes, cached_bytes), _without_context(_abi.Release, release))

    def _add(self, name: str, cached_bytes: Any, release: Any, context: Optional[int] = None) -> None:
        """Adds it with C functions."""
        options = _abi.CHolderOptions()
        options.name, options.cached_bytes, options.release = words.text_of("name", name), cached_bytes, release
        options.context = context
        self.name, self._holder = name, library.add_holder(ctypes.byref(options))
        _added[self._holder] = cached_bytes, release

    def remove(self) -> None:
        """Removes it, when no call of its functions runs any more."""
        if self._holder:
            library.remove_holder(self._holder)
            _added.pop(self._holder, None)
            self._holder = 0

    def __enter__(self: _Holder) -> _Holder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def answer_of(function: Callable[..., int], *arguments: Any, _run: Any = ctypes.CFUNCTYPE(None)) -> int:
    """The bytes that a program's function says; 0 where it raises. It runs as C runs it: its exception goes to
    sys.unraisablehook, and an exception of that hook is lost. It uses no name of the module, which may be gone.
    """
    answer = 0

    def run() -> None:
        nonlocal answer
        answer = max(0, int(function(*arguments)))

    _run(run)()
    return answer


def _without_context(kind: Any, function: Optional[Callable[..., int]]) -> Any:
    """A function for C; a null pointer for None."""
    if function is not None and not callable(function):
        raise InvalidArgument(f"{function!r} is no function of a memory holder")
    return kind() if function is None else kind(lambda *given, ask=answer_of: ask(function, *given[:-1]))
