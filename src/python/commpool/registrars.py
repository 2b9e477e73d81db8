"""Libraries beside NCCL that register a pool's segments: each segment once, and never after its memory has gone.

    agent = nixl_agent("prefill")
    pool = commpool.Pool("cache", reserve="8GiB")
    pool.add_registrar(commpool.registrars.Nixl(agent))

A registrar is told of whole segments: of those that are there, of what grows (in a pool that is not symmetric when
`register_pending` is called), and before memory goes, in `trim`, `sleep` and `close`. `wake` tells it again.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, Sequence

from . import _abi, errors, options
from ._library import library

_held: dict[int, _Functions] = {}  # by their contexts, until the library has called `end`
_ended: list[int] = []


class SegmentTraits(NamedTuple):
    """What a pool's segments are."""

    device: int
    backing: str
    location: str
    numa_node: int
    granularity_bytes: int
    one_handle: bool
    descriptor: bool
    fabric: bool
    rdma: bool


class Registrar:
    """A library that registers memory, as a pool sees it. Its methods may not call commpool.

    What a method raises fails the pool's call, on all ranks where the pool is symmetric.
    """

    name = "registrar"

    def check(self, traits: SegmentTraits) -> None:
        """Raises NotSupported, with the reason, where it takes no such segments."""

    def add(self, address: int, nbytes: int) -> Any:
        """Registers a segment; returns what `remove` is to get back."""
        raise NotImplementedError

    def add_of(self, traits: SegmentTraits, address: int, nbytes: int) -> Any:
        """What the pool calls: for registrars that must know whose segment it is, because several pools have them."""
        return self.add(address, nbytes)

    def remove(self, address: int, nbytes: int, registered: Any) -> None:
        """Ends that registration."""
        raise NotImplementedError

    def end(self) -> None:
        """The pool calls no method any more."""


def _is_on_device(traits: SegmentTraits) -> bool:
    return traits.location == "device" and traits.backing != "pinned"


class Nixl(Registrar):
    """A NIXL agent: `nixl_agent` of NIXL's Python package. Backends are named as its `register_memory` takes them."""

    def __init__(self, agent: Any, backends: Optional[list[str]] = None, name: str = "nixl") -> None:
        self.name, self._agent, self._backends = name, agent, list(backends or [])

    def check(self, traits: SegmentTraits) -> None:
        """Without the flag for RDMA, or without a handle that UCX can pass on, NIXL is slow and does not say so.
        """
        if traits.location == "device" and traits.backing == "vmm" and not traits.descriptor and not traits.fabric:
            raise errors.NotSupported("the segments have no handle that another process can import: NIXL would copy "
                                      "them through the host")

    def add_of(self, traits: SegmentTraits, address: int, nbytes: int) -> Any:
        """Registers the segment as one region: device memory as NIXL's VRAM, host memory as its DRAM."""
        memory, device = ("VRAM", traits.device) if _is_on_device(traits) else ("DRAM", 0)
        return self._agent.register_memory([(address, nbytes, device, "")], memory, self._backends)

    def remove(self, address: int, nbytes: int, registered: Any) -> None:
        """Ends that registration."""
        self._agent.deregister_memory(registered, self._backends)


class _MapParameters(ctypes.Structure):
    """The first fields of UCX's ucp_mem_map_params; the mask says which are set."""

    _fields_ = [("field_mask", ctypes.c_uint64), ("address", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("flags", ctypes.c_uint), ("prot", ctypes.c_uint), ("memory_type", ctypes.c_int),
                ("later", ctypes.c_uint64 * 8)]


_ADDRESS, _LENGTH, _MEMORY_TYPE = 1, 2, 16  # bits of the mask
_HOST, _CUDA = 0, 1  # UCX's kinds of memory


class Ucx(Registrar):
    """A UCX context, by the address of its `ucp_context_h`. `handles` has each segment's `ucp_mem_h`, by address."""

    def __init__(self, context: int, library: str = "libucp.so.0", name: str = "ucx") -> None:
        """Takes the context.

        Raises:
          NotFound: UCX is not there.
        """
        self.name, self.handles = name, dict[int, int]()
        self._context = ctypes.c_void_p(context)
        try:
            self._ucp = ctypes.CDLL(library)
            for call in (self._ucp.ucp_mem_map, self._ucp.ucp_mem_unmap):
                call.restype = ctypes.c_int8  # ucs_status_t is packed: the other bits of the register mean nothing
        except (OSError, AttributeError) as error:
            raise errors.NotFound(f"UCX: {error}") from error

    def add_of(self, traits: SegmentTraits, address: int, nbytes: int) -> Any:
        """Maps the segment."""
        handle, kind = ctypes.c_void_p(), _CUDA if _is_on_device(traits) else _HOST
        parameters = _MapParameters(_ADDRESS | _LENGTH | _MEMORY_TYPE, address, nbytes, memory_type=kind)
        self._judge("ucp_mem_map", self._ucp.ucp_mem_map(self._context, ctypes.byref(parameters), ctypes.byref(handle)))
        self.handles[address] = handle.value or 0
        return handle

    def remove(self, address: int, nbytes: int, registered: Any) -> None:
        """Unmaps it."""
        self._judge("ucp_mem_unmap", self._ucp.ucp_mem_unmap(self._context, registered))
        del self.handles[address]

    def _judge(self, call: str, status: int) -> None:
        if status == 0:
            return
        text_of = self._ucp.ucs_status_string
        text_of.restype = ctypes.c_char_p
        said = text_of(status).decode(errors="replace")
        raise errors.CommunicatorError(f"{call}: {said}")


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
    library.pools_add_registrar((ctypes.c_uint64 * len(handles))(*handles), places, len(handles))


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
    given = (ctypes.c_uint64 * len(handles))(*handles)
    with errors.refusing(lambda _: library.pools_remove_registrar(given, len(handles), b"")):
        text = options.text_of("name", name)
    library.pools_remove_registrar(given, len(handles), text)
