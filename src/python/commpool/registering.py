"""How a pool tells registrars: their methods as C functions, and the calls of a Pool that are about them."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Sequence

from . import _abi, errors, options, registrars
from ._library import library
from .blocks import Eligibility
from .handles import handle_array
from .registrars import Registrar, SegmentTraits
from .statistics import settings_of

_held: dict[int, _Functions] = {}  # by their contexts, until the library has called `end`
_ended: list[int] = []


class Registering:
    """The part of a Pool that libraries beside NCCL are concerned with."""

    __slots__ = ()

    handle: int
    device: int
    backing: str
    mode: str

    def add_registrar(self, registrar: Optional[Registrar]) -> None:
        """Registers the segments with a library beside NCCL, those to come included: see `commpool.registrars`.

        Every rank of a symmetric pool calls it, with None where it has no such library.

        Raises:
          NotSupported: the library takes no such segments, or the pool is expandable.
          FailedPrecondition: the pool has a registrar of that name.
        """
        add([self.handle], [registrar])

    def remove_registrar(self, name: str) -> None:
        """Ends that library's registrations, once the device is idle; called as `add_registrar` is.

        Raises:
          NotFound: a pool that is not symmetric has no such registrar.
        """
        remove([self.handle], name)

    def eligible(self, name: registrars.LibraryWord) -> Eligibility:
        """Whether "nixl" or "ucx" can register the pool's memory and move it without copies through the host, as far
        as the pool knows: ask once it has memory. This rank's own answer, also of a symmetric pool.

        Raises:
          InvalidArgument: it is another library.
        """
        if name not in registrars.LIBRARIES:
            raise errors.InvalidArgument(f"library {name!r} is none of {', '.join(registrars.LIBRARIES)}")
        if self.mode == "expandable":
            return Eligibility(False, "the pool is expandable: its pages move, and registered memory may not")
        reason = registrars.why_not_direct(_traits_of(self))
        return Eligibility(not reason, reason)


def _traits_of(pool: Registering) -> SegmentTraits:
    said = next(setting.value for setting in settings_of(pool.handle) if setting.key == "segments")
    told: dict[str, str] = dict(entry.split(":") for entry in said.split(","))
    return SegmentTraits(pool.device, pool.backing, told["location"], int(told["numa_node"]), int(told["granularity"]),
                         *(told[name] == "1" for name in ("one_handle", "descriptor", "fabric", "rdma")))


class _Functions:
    """A registrar's methods as C functions. They live until `end` has been called, as the C struct promises."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar, self._registered = registrar, dict[int, Any]()
        self._traits: Any = None
        self.given = _abi.CRegistrar()
        self.given.name = options.text_of("name", registrar.name)
        self.given.context = id(self)
        self.given.check, self.given.add = _abi.Check(self._check), _abi.Add(self._add)
        self.given.remove, self.given.end = _abi.Remove(self._remove), _abi.End(self._end)

    def _check(self, _context: Any, traits: Any, why: int, why_bytes: int) -> int:
        given = traits.contents
        told = SegmentTraits(given.device, _word("backing", given.backing), _word("location", given.location),
                             given.numa_node, given.granularity_bytes,
                             bool(given.one_handle), bool(given.descriptor), bool(given.fabric), bool(given.rdma))
        self._traits = told
        return _answer(why, why_bytes, lambda: self._registrar.check(told))

    def _add(self, _context: Any, address: int, nbytes: int, _handle: Any, why: int, why_bytes: int) -> int:
        def act() -> None:
            self._registered[address] = self._registrar.add_of(self._traits, address, nbytes)

        return _answer(why, why_bytes, act)

    def _remove(self, _context: Any, address: int, nbytes: int, _handle: Any, why: int, why_bytes: int) -> int:
        def act() -> None:
            self._registrar.remove(address, nbytes, self._registered[address])
            del self._registered[address]

        return _answer(why, why_bytes, act)

    def _end(self, _context: Any) -> None:
        _ended.append(id(self))  # not at once: this function runs still
        self._registrar.end()


def _word(enumeration: str, number: int) -> str:
    return next(word for word, its in _abi.WORDS[f"commpool_{enumeration}"].items() if its == number)


def _answer(why: int, why_bytes: int, act: Callable[[], Any]) -> int:
    """Calls a method. What it raises becomes the cause of the exception of the pool's call."""
    try:
        act()
        return 0
    except BaseException as error:  # no exception may pass through C
        errors.raised.exception = error
        said = f"{type(error).__name__}: {error}".encode(errors="replace")[:why_bytes - 1] + b"\0"
        ctypes.memmove(why, said, len(said))
        if isinstance(error, MemoryError):
            return _abi.StatusCode.OUT_OF_MEMORY
        return (_abi.StatusCode.NOT_SUPPORTED if isinstance(error, NotImplementedError) else
                _abi.StatusCode.FAILED_PRECONDITION)


def _functions_of(registrar: Optional[Registrar]) -> Optional[_Functions]:
    if registrar is None:
        return None
    if not isinstance(registrar, Registrar):
        raise errors.InvalidArgument(f"{registrar!r} is no commpool.registrars.Registrar")
    return _Functions(registrar)


def _pass(handles: Sequence[int], given: Sequence[Any]) -> None:
    struct = ctypes.POINTER(_abi.CRegistrar)
    places = (struct * len(given))(*(ctypes.pointer(one) if one is not None else struct() for one in given))
    library.pools_add_registrar(handle_array(handles), places, len(handles))


def add(handles: Sequence[int], registrars: Sequence[Optional[Registrar]]) -> None:
    """Calls `Pool.add_registrar` for pools by their handles, with one registrar for each, or None."""
    while _ended:
        _held.pop(_ended.pop(), None)
    refused = _abi.CRegistrar()
    refused.struct_bytes = 0
    with errors.refusing(lambda _: _pass(handles, [refused] * len(handles))):
        if len(registrars) != len(handles):
            raise errors.InvalidArgument(f"{len(registrars)} registrars for {len(handles)} pools")
        functions = [_functions_of(registrar) for registrar in registrars]
    _held.update((id(one), one) for one in functions if one is not None)
    try:
        _pass(handles, [one and one.given for one in functions])
    except BaseException:
        for one in functions:
            _held.pop(id(one), None)
        raise


def remove(handles: Sequence[int], name: str) -> None:
    """Calls `Pool.remove_registrar` for pools by their handles."""
    given = handle_array(handles)
    with errors.refusing(lambda _: library.pools_remove_registrar(given, len(handles), b"")):
        text = options.text_of("name", name)
    library.pools_remove_registrar(given, len(handles), text)
