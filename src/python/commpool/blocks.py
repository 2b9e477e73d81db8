"""Buffers: blocks of device memory that free themselves; and functions for any block, by its address: what NCCL can do
with it too."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from . import _abi, _capsules, _driver, errors
from ._library import Owner, check, library, text_of
from .statistics import Block, block_of_struct
from .handles import (Communicator, Device, Pointer, Stream, communicator_handle, device_number, meant, pointer_of,
                      stream_handle)
from .sizes import MOST_BYTES, Size, format_size, index_of, parse_size

_CURRENT_DEVICE = -1  # COMMPOOL_CURRENT_DEVICE
_FIRST_DEVICE = 0
_MOST_ALIGNMENT = 2 << 20
_BLOCK_ALIGNMENT = 512  # every block's address is a multiple of it
_FREE = library.address("commpool_free")
_OF_POOL, _OF_DEVICE, _IN_SCOPE = (library.address(f"commpool_{call}") for call in (
    "pool_allocate", "allocate", "allocate_in_scope"))


_Buffer = TypeVar("_Buffer", bound="Buffer")

# A function of the library that allocates, whether it asks a pool, and the pool or device that it asks.
Source = tuple[int, bool, int]


def of_pool(handle: int) -> Source:
    """A pool, whatever scopes are open."""
    return _OF_POOL, True, handle


def of_device(number: int) -> Source:
    """What scopes catch, else the device's default pool."""
    return _OF_DEVICE, False, number


_free_block = _capsules.in_c(ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p), "commpool_block_free")
_allocate_block = _capsules.in_c(
    ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p,
                      ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)), "commpool_block_allocate")


class Buffer(Owner):
    """A block of device memory. It returns to its pool with `free()`, at the end of a `with`, or with its last name.

    `pointer` is a device address: the host must not read through it. The stream of the allocation, and streams that
    `record_stream` got, may still use freed memory for work that they already have.
    """

    __slots__ = ("_block", "_owned", "pointer", "nbytes", "stream", "__weakref__")

    def __init__(self, block: int, pointer: int, nbytes: int, stream: int, owned: Any) -> None:
        """Takes over a block that commpool allocated, with the capsule that owns it."""
        self._owned = owned
        self._block = block
        self.pointer = pointer
        self.nbytes = nbytes
        self.stream = stream

    def free(self) -> None:
        """Frees the block now; raises if that fails."""
        if self._owned is not None:
            status = _free_block(id(self._owned))
            self.release()
            check(status)

    def release(self) -> int:
        """Hands the block over to the caller, who must give it to `commpool.free`; returns its start."""
        block, self._block, self.pointer, self.nbytes = self._block, 0, 0, 0
        if self._owned is not None:
            _capsules.set_context(id(self._owned), None)
            self._owned = None
        return block

    def record_stream(self, stream: Stream) -> None:
        """Notes that another stream uses the block. Call it after the work is submitted, and before the free."""
        record_stream(self._block, stream)

    def _used_by(self, stream: int) -> None:
        """Hears of a consumer that will work on a stream: once freed, the block waits for that stream."""
        self.record_stream(stream)

    def __enter__(self: _Buffer) -> _Buffer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.free()

    def __int__(self) -> int:
        return self.pointer

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"<commpool.Buffer {format_size(self.nbytes)} at {self.pointer:#x}>"


def _taken(source: Source, nbytes: int, stream: int) -> tuple[Any, int]:
    """Allocates; returns a capsule that owns the block, and the status of the call."""
    errors.raised.exception = None
    status = ctypes.c_int()
    owned = _allocate_block(*source, nbytes, stream, _FREE, status)
    return owned, status.value


def allocated(source: Callable[[int], Source], size: Size, alignment: Size, stream: Stream) -> Buffer:
    """The buffer of `source(bytes)`, which begins at a multiple of `alignment`."""
    nbytes, wanted = parse_size(size), parse_size(alignment, "alignment")
    if wanted & (wanted - 1) or not 1 <= wanted <= _MOST_ALIGNMENT:
        raise errors.InvalidArgument(f"alignment {wanted} is no power of two from 1 to 2 MiB")
    padding = max(wanted - _BLOCK_ALIGNMENT, 0) if nbytes else 0
    count = min(nbytes + padding, MOST_BYTES)
    handle = stream_handle(stream)
    with meant(stream):
        owned, status = _taken(source(count), count, handle)
    check(status)
    start = _capsules.pointer_of(id(owned), None)
    return Buffer(start, (start + wanted - 1) & -wanted, nbytes, handle, owned)


def allocate(size: Size, stream: Stream = None, device: Optional[Device] = None, *, alignment: Size = 1) -> Buffer:
    """Allocates from the innermost scope that catches it, else from the device's default pool.

    Args:
      size: in bytes, or as text: "4MiB".
      stream: it may use the block at once; others after work there that follows it.
      device: None is the stream's device; for the default stream the thread's current one, or without a context CUDA's
        first.
      alignment: of the address: a power of two up to 2 MiB. Above 512 it uses that much more of the pool.
    """
    number = _CURRENT_DEVICE if device is None else device_number(device)
    try:
        return allocated(lambda _: of_device(number), size, alignment, stream)
    except errors.FailedPrecondition:
        if device is not None or _driver.current_device() is not None:
            raise
    return allocated(lambda _: of_device(_FIRST_DEVICE), size, alignment, stream)


def allocate_in_scope(size: Size, stream: Stream, device: Device) -> Optional[Buffer]:
    """Like `allocate`, but returns None if no scope catches it: for a router that leaves the rest to its framework."""
    handle, nbytes = stream_handle(stream), parse_size(size)
    owned, status = _taken((_IN_SCOPE, False, device_number(device)), nbytes, handle)
    if status == errors.StatusCode.NOT_CAUGHT:
        return None
    check(status)
    start = _capsules.pointer_of(id(owned), None)
    return Buffer(start, start, nbytes, handle, owned)


def free(block: int) -> None:
    """Frees a block, by its start, that `Buffer.release` or a C function handed out; 0 does nothing. A Buffer frees
    itself: it is no number, and refused.
    """
    library.free(index_of(block, "block"))


def record_stream(pointer: Pointer, stream: Stream) -> None:
    """Notes that a stream uses a block too. Call it after the work is submitted, and before the free."""
    with meant(stream):
        check(library.commpool_record_stream(pointer_of(pointer), stream_handle(stream)))


def promise_stream(stream: Stream) -> None:
    """Promises that the stream outlives its use: the program calls `release_stream` before the stream ends.

    Other streams may then reuse the memory that it frees after a wait on the device. If the router serves PyTorch's own
    streams, it promises them itself.
    """
    library.promise_stream(stream_handle(stream))


def release_stream(stream: Stream) -> None:
    """Waits for a stream's work, forgets the stream, and ends its promise. Without a promise no call is needed.

    A block that the stream works on later waits for it, once freed, only if `record_stream` names it.
    """
    library.release_stream(stream_handle(stream))


def block_of(pointer: Pointer) -> Optional[Block]:
    """The live block that holds a pointer; None if there is none."""
    block = _abi.CBlock()
    found = library.commpool_block_of(pointer_of(pointer), ctypes.byref(block), ctypes.sizeof(block))
    return block_of_struct(block) if found == 0 else None


class Window(NamedTuple):
    """The ncclWindow_t that holds a pointer, and the pointer's offset in it, which is the same on every rank."""

    handle: int
    offset: int


class Peers(NamedTuple):
    """Where a pointer is on each rank of a symmetric pool: on rank r at `first + r * stride`."""

    first: int
    stride: int
    ranks: int

    @property
    def addresses(self) -> list[int]:
        """By rank."""
        return [self.first + rank * self.stride for rank in range(self.ranks)]


class Eligibility(NamedTuple):
    """Whether a library can use the memory in the way that was asked about; if not, the reason."""

    eligible: bool
    reason: str

    def __bool__(self) -> bool:
        return self.eligible


NvlsEligibility = Eligibility


def window_of(pointer: Pointer, communicator: Communicator) -> Window:
    """Finds the window that holds a pointer on a communicator, without a driver call.

    Raises:
      NotFound: there is none.
    """
    window, offset = library.window_of(pointer_of(pointer), communicator_handle(communicator))
    return Window(window or 0, offset)


def nvls_eligible(pointer: Pointer, size: Size, communicator: Communicator) -> Eligibility:
    """Whether NCCL can use NVLink multicast for `size` at a pointer. A yes is no proof, because NCCL chooses by
    size."""
    eligible, reason = library.nvls_eligible(pointer_of(pointer), parse_size(size), communicator_handle(communicator))
    return Eligibility(eligible != 0, text_of(reason))
