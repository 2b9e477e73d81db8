"""Libraries beside NCCL that register a pool's segments: each segment once, and never after its memory has gone.

    agent = nixl_agent("prefill")
    pool = commpool.Pool("cache", reserve="8GiB")
    pool.add_registrar(commpool.registrars.Nixl(agent))

A registrar is told of whole segments: of those that are there, of what grows (in a pool that is not symmetric when
`register_pending` is called), and before memory goes, in `trim`, `sleep` and `close`. `wake` tells it again; then other
processes need NIXL's metadata, or UCX's keys, anew.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Literal, NamedTuple, Optional

from . import errors

LibraryWord = Literal["nixl", "ucx"]
PathsWord = Literal["direct", "any"]

LIBRARIES = ("nixl", "ucx")  # both move memory by UCX


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


def _has_rdma_cards() -> bool:
    return os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband"))


def _is_on_device(traits: SegmentTraits) -> bool:
    return traits.location == "device" and traits.backing != "pinned"


def why_not_direct(traits: SegmentTraits) -> str:
    """Why UCX would copy such segments through the host, which it does without a word; empty where it need not.

    It passes cudaMalloc's memory by CUDA's older handles. Of cuMemCreate it wants a fabric handle: it takes descriptors
    only where it was compiled with pidfd_getfd, and the packages of NIXL 1.5.1 and UCX 1.22.0 were not.
    """
    if not _is_on_device(traits) or traits.backing not in ("vmm", "nccl") or traits.fabric:
        return ""
    if traits.rdma and _has_rdma_cards():
        return ""
    handles = "file descriptors only" if traits.descriptor else "no handles"
    card = "no RDMA card is here" if traits.rdma else "it was not made for GPUDirect RDMA"
    return (f"the memory has {handles}, where UCX passes fabric handles on, and {card}: transfers would be copied "
            "through the host. Memory of backing cuda is reached directly; paths=any takes this as it is")


def _check_paths(paths: PathsWord, traits: SegmentTraits) -> None:
    reason = why_not_direct(traits) if paths == "direct" else ""
    if reason:
        raise errors.NotSupported(reason)


def _checked(paths: PathsWord) -> PathsWord:
    if paths not in ("direct", "any"):
        raise errors.InvalidArgument(f"paths {paths!r} is none of direct, any")
    return paths


class Nixl(Registrar):
    """A NIXL agent: `nixl_agent` of NIXL's Python package. Backends are named as its `register_memory` takes them."""

    def __init__(self, agent: Any, backends: Optional[list[str]] = None, name: str = "nixl", *,
                 paths: PathsWord = "direct") -> None:
        """Takes the agent.

        Args:
          paths: "any" takes memory too that UCX copies through the host, and that of a UCX which takes descriptors.
        """
        self.name, self._agent, self._backends, self._paths = name, agent, list(backends or []), _checked(paths)

    def check(self, traits: SegmentTraits) -> None:
        """Refuses what `Pool.eligible` does, unless any path will do."""
        _check_paths(self._paths, traits)

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
    """A UCX context, by the address of its `ucp_context_h`: `context.handle` in ucxx. `handles` has each segment's
    `ucp_mem_h`, by address.
    """

    def __init__(self, context: int, library: str = "libucp.so.0", name: str = "ucx", *,
                 paths: PathsWord = "direct") -> None:
        """Takes the context.

        Args:
          paths: as of Nixl.

        Raises:
          NotFound: UCX is not there.
        """
        self.name, self.handles, self._paths = name, dict[int, int](), _checked(paths)
        self._context = ctypes.c_void_p(context)
        try:
            self._ucp = ctypes.CDLL(library)
            for call in (self._ucp.ucp_mem_map, self._ucp.ucp_mem_unmap):
                call.restype = ctypes.c_int8  # ucs_status_t is packed: the other bits of the register mean nothing
        except (OSError, AttributeError) as error:
            raise errors.NotFound(f"UCX: {error}") from error

    def check(self, traits: SegmentTraits) -> None:
        """Refuses what `Pool.eligible` does, unless any path will do."""
        _check_paths(self._paths, traits)

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
