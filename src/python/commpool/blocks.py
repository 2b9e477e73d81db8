"""Buffers: blocks of device memory that free themselves; and what is done with any block by its address."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

from . import _abi, _capsules, errors
from ._library import check, library
from ._owners import Owner
from .figures import Block, block_of_struct
from .handles import Device, Pointer, Stream, device_number, pointer_of, stream_handle
from .sizes import MOST_BYTES, Size, format_size, parse_size

_CURRENT_DEVICE = -1  # COMMPOOL_CURRENT_DEVICE
_MOST_ALIGNMENT = 2 << 20
_BLOCK_ALIGNMENT = 512  # every block begins at a multiple of it
_FREE = library.address("commpool_free")


def _make_functions() -> tuple[Any, Any]:
    """What frees a capsule's block, and its destructor, which does it too; neither uses a name of the module."""
    free, context_of, set_context, pointer_of = (library.commpool_free, _capsules.context_of, _capsules.set_context,
                                                 _capsules.pointer_of)

    def free_block(capsule: int) -> int:
        owned = context_of(capsule)
        set_context(capsule, None)
        return int(free(pointer_of(capsule, None))) if owned else 0

    def destroy(capsule: int) -> None:
        free_block(capsule)

    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    return (_capsules.in_c(kind, "commpool_block_free", free_block),
            _capsules.in_c(_capsules.Destructor, "commpool_block_destroy", destroy))


_free_block, _destroy = _make_functions()


class Buffer(Owner):
    """A block of device memory; it goes back to its pool with `free()`, at the end of a `with`, or with its last name.

    `pointer` is a device address: the host must not read through it. Work already submitted to the stream of the
    allocation, and to streams given to `record_stream`, may still use the memory after it was freed.
    """

    __slots__ = ("_block", "_owned", "pointer", "nbytes", "stream", "__weakref__")

    def __init__(self, block: int, pointer: int, nbytes: int, stream: int) -> None:
        """Takes over a block that commpool allocated."""
        self._owned = _capsules.new(block, None, _destroy) if block else None
        if block:
            _capsules.set_context(id(self._owned), _FREE)
        self._block = block
        self.pointer = pointer
        self.nbytes = nbytes
        self.stream = stream

    def free(self) -> None:
        """Frees it now, and raises what failed."""
        if self._owned is not None:
            status = _free_block(id(self._owned))
            self.release()
            check(status)

    def release(self) -> int:
        """Hands the block over to the caller, who gives it to `commpool.free`; returns its start."""
        block, self._block, self.pointer, self.nbytes = self._block, 0, 0, 0
        if self._owned is not None:
            _capsules.set_context(id(self._owned), None)
            self._owned = None
        return block

    def record_stream(self, stream: Stream) -> None:
        """Notes that another stream uses the block: after submitting that work, before the free."""
        record_stream(self._block, stream)

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.free()

    def __int__(self) -> int:
        return self.pointer

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"<commpool.Buffer {format_size(self.nbytes)} at {self.pointer:#x}>"


def allocated(call: Callable[[int], Any], size: Size, alignment: Size, stream: int) -> Buffer:
    """The buffer that `call(bytes)` allocates, beginning at a multiple of `alignment`."""
    nbytes, wanted = parse_size(size), parse_size(alignment, "alignment")
    if wanted & (wanted - 1) or not 1 <= wanted <= _MOST_ALIGNMENT:
        raise errors.InvalidArgument(f"alignment {wanted} is no power of two from 1 to 2 MiB")
    padding = max(wanted - _BLOCK_ALIGNMENT, 0) if nbytes else 0
    start = call(min(nbytes + padding, MOST_BYTES)) or 0
    return Buffer(start, (start + wanted - 1) & -wanted, nbytes, stream)


def allocate(size: Size, stream: Stream = None, device: Optional[Device] = None, *, alignment: Size = 1) -> Buffer:
    """Allocates from the innermost scope that catches it, else from the device's default pool.

    Args:
      size: in bytes, or as text: "4MiB".
      stream: the block may be used on it at once, on others after work there was ordered behind it.
      device: None is the stream's; for the default stream the thread's current one.
      alignment: of the address, a power of two up to 2 MiB; above 512 it costs as much of the pool.
    """
    handle = stream_handle(stream)
    number = _CURRENT_DEVICE if device is None else device_number(device)
    return allocated(lambda count: library.allocate(number, count, handle), size, alignment, handle)


def allocate_in_scope(size: Size, stream: Stream, device: Device) -> Optional[Buffer]:
    """The same where a scope catches it, else None: for a router that leaves all else to its framework."""
    handle, number, block = stream_handle(stream), device_number(device), ctypes.c_void_p()
    nbytes = parse_size(size)
    errors.forget_raised()
    status = library.commpool_allocate_in_scope(number, nbytes, handle, ctypes.byref(block))
    if status == errors.StatusCode.NOT_CAUGHT:
        return None
    check(status)
    return Buffer(block.value or 0, block.value or 0, nbytes, handle)


def free(block: int) -> None:
    """Gives back a block that `Buffer.release` or a C function handed out, by its start; 0 is nothing."""
    library.free(block)


def record_stream(pointer: Pointer, stream: Stream) -> None:
    """Notes that a stream uses a block, too: after submitting that work, before the free."""
    check(library.commpool_record_stream(pointer_of(pointer), stream_handle(stream)))


def release_stream(stream: Stream) -> None:
    """Forgets a stream, after waiting for its work: call it before the stream is destroyed."""
    library.release_stream(stream_handle(stream))


def block_of(pointer: Pointer) -> Optional[Block]:
    """The live block that holds a pointer; None for one that is in no block."""
    block = _abi.CBlock()
    found = library.commpool_block_of(pointer_of(pointer), ctypes.byref(block), ctypes.sizeof(block))
    return block_of_struct(block) if found == 0 else None
