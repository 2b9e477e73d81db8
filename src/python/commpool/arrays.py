"""Arrays: device memory with a shape and a type, which other libraries take by DLPack or __cuda_array_interface__; and
what a pool keeps of a tensor while it sleeps, as NumPy and DLPack take it on the CPU: no copy."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, NamedTuple, Optional, Protocol, Union

from . import _dlpack, _driver
from ._library import Owner, library
from .blocks import Buffer, block_of
from .errors import FailedPrecondition, InvalidArgument
from .handles import Device, Pointer, Stream, device_number, known_device, place_of, pointer_of, stream_handle
from .sizes import index_of


class _Pool(Protocol):
    """What arrays ask of a pool, which can make arrays itself."""

    handle: int

    @property
    def name(self) -> str: ...
    @property
    def device(self) -> int: ...
    def allocate(self, size: int, stream: Stream) -> Buffer: ...


class _Type(NamedTuple):
    code: int  # DLDataTypeCode
    bits: int
    letter: str = ""  # NumPy's letter; empty if NumPy has none


_TYPES = {
    **{f"int{bits}": _Type(0, bits, "i") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _Type(1, bits, "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": _Type(2, bits, "f") for bits in (16, 32, 64)},
    **{f"complex{bits}": _Type(5, bits, "c") for bits in (64, 128)},
    "bool": _Type(6, 8, "b"),
    "bfloat16": _Type(4, 16),
    "float8_e4m3fn": _Type(10, 8),
    "float8_e5m2": _Type(12, 8),
}


def type_name(dtype: Any) -> str:
    """The name of "float32", numpy.float32, numpy.dtype("float32") or torch.float32."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    name = str(name).rpartition(".")[2]
    if name not in _TYPES or not getattr(dtype, "isnative", True):
        raise InvalidArgument(f"dtype {dtype!r} is none of {', '.join(_TYPES)}, in this machine's byte order")
    return name


class _Contiguous(Owner):
    """Contiguous memory with a shape and a type, which others take by DLPack."""

    __slots__ = ("shape", "dtype", "__weakref__")

    shape: tuple[int, ...]
    dtype: str
    pointer: Any

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * _TYPES[self.dtype].bits // 8

    def _interface(self, protocol: str, **more: Any) -> dict[str, Any]:
        """Version 3 of NumPy's protocol or of CUDA's. It refuses types that NumPy does not have."""
        _, bits, letter = _TYPES[self.dtype]
        if not letter:
            raise AttributeError(f"{protocol} has no {self.dtype}: use DLPack")
        return {"shape": self.shape, "typestr": f"{'<' if bits > 8 else '|'}{letter}{bits // 8}", "strides": None,
                "version": 3, **more}

    def __dlpack_device__(self) -> tuple[int, int]:
        """Its kind and number."""
        raise NotImplementedError

    def _order(self, stream: Optional[int]) -> None:
        """Makes the consumer's stream wait for what was written, and the memory, once it is freed, for the consumer's
        stream."""

    def _place(self) -> str:
        """Where it lies, for its text."""
        raise NotImplementedError

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule for a consumer that works on `stream`; -1: the consumer orders its work itself.

        Raises:
          FailedPrecondition: `stream` captures, or the array's own, and the other one does not; or its buffer was
            freed.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"{self!r} lies on DLPack's device {device}, and is not copied to {dl_device}")
        if copy:
            raise BufferError("commpool hands its memory over and makes no copies")
        self._order(stream)
        kind, dimensions = _TYPES[self.dtype], len(self.shape)
        strides = [math.prod(self.shape[place + 1:]) for place in range(dimensions)]
        lengths = ctypes.c_int64 * dimensions
        tensor = _dlpack.DLTensor(self.pointer, _dlpack.DLDevice(*device), dimensions,
                                  _dlpack.DLDataType(kind.code, kind.bits, 1), lengths(*self.shape), lengths(*strides))
        versioned = max_version is not None and max_version[0] >= _dlpack.VERSION[0]
        return _dlpack.capsule(tensor, versioned, self)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<commpool.{type(self).__name__} {shape} {self.dtype}{self._place()}>"


class Array(_Contiguous):
    """A contiguous array of device memory. Nothing is written to it. Its memory lives as long as it or a consumer, or
    until `array.buffer.free()`: whoever calls that answers for the consumers too.

    If a consumer works on another stream, its work starts after all work that the array's stream has at that moment.
    """

    __slots__ = ("buffer", "device", "_stream", "_written_on")

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], dtype: str, device: int, stream: Stream,
                 written_on: Optional[_driver.Place] = None) -> None:
        """Takes over the buffer of a stream, whose object is kept; `written_on`: None is where that is meant now."""
        self.buffer, self.shape, self.dtype, self.device = buffer, shape, dtype, device
        self._stream, self._written_on = stream, written_on or place_of(stream, device)

    @property
    def pointer(self) -> int:
        """Its device address."""
        return self.buffer.pointer

    @property
    def stream(self) -> int:
        """The stream of its allocation."""
        return self.buffer.stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. It refuses types that NumPy does not have; DLPack takes those.

        Raises:
          FailedPrecondition: its buffer was freed.
        """
        self._refuse_freed()
        return self._interface("__cuda_array_interface__", data=(self.pointer, False),
                               stream=self.stream or _driver.LEGACY_STREAM)  # 0 is ambiguous there

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Raises TypeError, as CuPy does: NumPy would make an array of one object."""
        raise TypeError(f"{self!r} is memory that a device works on, and NumPy would not wait for it: copy it to the "
                        "host first, by torch.from_dlpack(array).cpu() or cupy.asarray(array).get()")

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA's, even for memory of a host NUMA node, because the device addresses it."""
        return _dlpack.CUDA, self.device

    def _refuse_freed(self) -> None:
        if self.nbytes and not self.pointer:
            raise FailedPrecondition(f"{self!r} has no memory any more: its buffer was freed")

    def _order(self, stream: Optional[int]) -> None:
        self._refuse_freed()
        if stream == 0:
            raise InvalidArgument("__dlpack__: stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's")
        if stream == -1 or not self.nbytes:
            return
        consumer = _driver.Place.of(int(stream or 0), self.device)
        written_on = {self._written_on}
        if self._written_on.handle <= _driver.PER_THREAD_STREAM:  # the block is the own default stream's too
            written_on.add(self._written_on._replace(device=self.device))
        for written in written_on - {consumer}:
            _driver.make_wait(consumer, written)
        with _driver.on_device(self.device):  # a default stream is the device's own
            self.buffer._used_by(consumer.handle)  # now, for nobody knows how long the stream lives

    def _place(self) -> str:
        return f", device {self.device}"


class Kept(_Contiguous):
    """A copy on the host of what a tensor held as its pool fell asleep, for reading: numpy.asarray(kept), or
    torch.from_dlpack(kept).

    What is made of it is valid until the pool wakes, or, retained, until it next sleeps or the tensor is freed. After
    that nothing is made of it any more, and what was made must not be looked at.
    """

    __slots__ = ("pool", "source")

    def __init__(self, pool: _Pool, tensor: Pointer) -> None:
        """Of a tensor of the pool, which stays the program's."""
        self.pool, self.source = pool, pointer_of(tensor)
        self.shape, self.dtype = _description(tensor)
        self.pointer  # noqa: B018  raises where there is no copy

    @property
    def pointer(self) -> int:
        """Its address on the host.

        Raises:
          NotFound: it was not kept, or was freed.
          FailedPrecondition: the pool is awake and has not retained it; or its file was changed.
        """
        return int(library.pool_kept(self.pool.handle, self.source, self.nbytes) or 0)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Version 3, of memory that NumPy may not write to. Types that it does not have go by DLPack."""
        return self._interface("__array_interface__", data=(self.pointer, True))

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return _dlpack.CPU, 0

    def _place(self) -> str:
        return f" of pool {self.pool.name!r}"


def _description(tensor: Any) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor, an Array, or a Buffer, which is bytes."""
    if hasattr(tensor, "shape") and hasattr(tensor, "dtype"):
        if not getattr(tensor, "is_contiguous", lambda: True)():
            raise InvalidArgument("kept takes a tensor that is contiguous: ask for the one that this is a view of")
        return tuple(map(int, tensor.shape)), type_name(tensor.dtype)
    if hasattr(tensor, "nbytes"):
        return (int(tensor.nbytes),), "uint8"
    raise InvalidArgument(f"kept takes a tensor, an Array or a Buffer, not {tensor!r}")


def _layout(shape: Union[int, tuple[int, ...]], dtype: Any) -> tuple[tuple[int, ...], str, int]:
    """The lengths, the type's name, and the bytes of an array."""
    lengths = tuple(index_of(length, "shape") for length in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    name = type_name(dtype)
    return lengths, name, math.prod(lengths) * _TYPES[name].bits // 8


def of_buffer(buffer: Buffer, shape: Union[int, tuple[int, ...]], dtype: Any, device: int,
              written_on: Optional[_driver.Place] = None) -> Array:
    """An array of a buffer's first bytes."""
    lengths, name, nbytes = _layout(shape, dtype)
    if nbytes > buffer.nbytes:
        raise InvalidArgument(f"an array of shape {lengths} and {name} has {nbytes} bytes, and {buffer!r} has fewer")
    return Array(buffer, lengths, name, device, buffer.stream, written_on)


def made(allocate: Callable[..., Buffer], shape: Union[int, tuple[int, ...]], dtype: Any, device: Optional[Device],
         stream: Stream) -> Array:
    """An array with memory of a function that takes bytes, a stream and a device."""
    lengths, name, nbytes = _layout(shape, dtype)
    if nbytes == 0:
        return _without_memory(lengths, name, known_device("cuda" if device is None else device), stream)
    buffer = allocate(nbytes, stream, device)
    block = block_of(buffer)
    number = block.device if block else 0
    written_on = None if device is None else _driver.Place.of(buffer.stream, device_number(device))
    return Array(buffer, lengths, name, number, stream, written_on)


def made_in(pool: _Pool, shape: Union[int, tuple[int, ...]], dtype: Any, stream: Stream) -> Array:
    """An array with memory of the pool."""
    lengths, name, nbytes = _layout(shape, dtype)
    if nbytes == 0:
        return _without_memory(lengths, name, pool.device, stream)
    return Array(pool.allocate(nbytes, stream), lengths, name, pool.device, stream)


def _without_memory(lengths: tuple[int, ...], dtype: str, device: int, stream: Stream) -> Array:
    """An array without elements has no block."""
    return Array(Buffer(0, 0, 0, stream_handle(stream), None), lengths, dtype, device, stream,
                 _driver.Place.of(stream_handle(stream), device))
