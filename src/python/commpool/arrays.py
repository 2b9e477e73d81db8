"""Arrays: device memory with a shape and a type, which other libraries take by DLPack or __cuda_array_interface__."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _dlpack, _driver
from ._library import library
from ._owners import Owner
from .blocks import Buffer, allocate, block_of
from .errors import InvalidArgument
from .handles import Device, Stream, device_number
from .pool import Pool, checked
from .sizes import index_of

_LEGACY_STREAM = 1  # in both protocols; 0 is ambiguous there


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
    if name not in _TYPES:
        raise InvalidArgument(f"dtype {dtype!r} is none of {', '.join(_TYPES)}")
    return name


def kind_of(name: str) -> _Type:
    """The type with a name."""
    return _TYPES[name]


def typestr_of(name: str, protocol: str) -> str:
    """NumPy's text for a type. `protocol` is a protocol that takes no other types.

    Raises:
      AttributeError: NumPy does not have it.
    """
    _, bits, letter = _TYPES[name]
    if not letter:
        raise AttributeError(f"{protocol} has no {name}: use DLPack")
    return f"{'<' if bits > 8 else '|'}{letter}{bits // 8}"


def dlpack_tensor(pointer: int, device: tuple[int, int], shape: tuple[int, ...], dtype: str) -> _dlpack.DLTensor:
    """A contiguous tensor."""
    kind, dimensions = _TYPES[dtype], len(shape)
    strides = [math.prod(shape[place + 1:]) for place in range(dimensions)]
    lengths = ctypes.c_int64 * dimensions
    return _dlpack.DLTensor(pointer, _dlpack.DLDevice(*device), dimensions,
                            _dlpack.DLDataType(kind.code, kind.bits, 1), lengths(*shape), lengths(*strides), 0)


class Array(Owner):
    """A contiguous array of device memory. Nothing is written to it. Its memory lives as long as it or a consumer.

    If a consumer works on another stream, its work starts after all work that the array's stream has at that moment.
    """

    __slots__ = ("buffer", "shape", "dtype", "device", "__weakref__")

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], dtype: str, device: int) -> None:
        """Takes over the buffer."""
        self.buffer = buffer
        self.shape = shape
        self.dtype = dtype
        self.device = device

    @property
    def pointer(self) -> int:
        """Its device address."""
        return self.buffer.pointer

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * _TYPES[self.dtype].bits // 8

    @property
    def stream(self) -> int:
        """The stream of its allocation."""
        return self.buffer.stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. It refuses types that NumPy does not have; DLPack takes those."""
        return {"shape": self.shape, "typestr": typestr_of(self.dtype, "__cuda_array_interface__"),
                "data": (self.pointer, False), "strides": None, "stream": self.stream or _LEGACY_STREAM, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA's, even for memory of a host NUMA node, because the device addresses it."""
        return _dlpack.CUDA, self.device

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule for a consumer that works on `stream`; -1: the consumer orders its work itself."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array lies on device {self.device}, and is not copied to {dl_device}")
        if copy:
            raise BufferError("commpool hands its memory over and makes no copies")
        consumer = self._ordered(stream)
        versioned = max_version is not None and max_version[0] >= _dlpack.VERSION[0]
        # When the consumer lets go, the block waits for the consumer's stream. Nobody can hear of a failure there.
        done = functools.partial(library.commpool_record_stream, self.pointer, consumer)
        tensor = dlpack_tensor(self.pointer, self.__dlpack_device__(), self.shape, self.dtype)
        return _dlpack.capsule(tensor, versioned, self, done if consumer != self.stream else int)

    def _ordered(self, stream: Optional[int]) -> int:
        """Makes the consumer's stream wait for the array's; returns the consumer's."""
        if stream == -1:
            return self.stream
        if stream == 0:
            raise InvalidArgument("__dlpack__: stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's")
        consumer = _LEGACY_STREAM if stream is None else int(stream)
        if consumer != (self.stream or _LEGACY_STREAM):
            _driver.make_wait(self.device, consumer, self.stream)
        return consumer

    def __repr__(self) -> str:
        return f"<commpool.Array {'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}, device {self.device}>"


def empty(shape: Union[int, tuple[int, ...]], dtype: Any = "float32", *, device: Optional[Device] = None,
          stream: Stream = None, pool: Optional[Pool] = None) -> Array:
    """An array of the pool, or of the innermost scope that catches it, else of the device's default pool.

    Args:
      shape: a length, or several.
      dtype: "float32", or NumPy's or torch's object of that name.
      device: None is the device of the stream; for the default stream the thread's current one.
      stream: as in `allocate`.
      pool: the pool to take memory from, whatever scopes are open.
    """
    return made(allocate, shape, dtype, device, stream, pool)


def made(allocate: Callable[..., Buffer], shape: Union[int, tuple[int, ...]], dtype: Any, device: Optional[Device],
         stream: Stream, pool: Optional[Pool]) -> Array:
    """An array with memory of the pool, or of a function that takes bytes, a stream and a device."""
    lengths = tuple(index_of(length, "shape") for length in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    name = type_name(dtype)
    nbytes = math.prod(lengths) * _TYPES[name].bits // 8
    if nbytes == 0:
        raise InvalidArgument(f"an array of shape {lengths} has no bytes, and the library allocates none")
    if pool is not None:
        checked(pool, "empty")
        if device is not None and device_number(device) != pool.device:
            raise InvalidArgument(f"pool {pool.name} is of device {pool.device}, not {device}")
        return Array(pool.allocate(nbytes, stream), lengths, name, pool.device)
    buffer = allocate(nbytes, stream, device)
    block = block_of(buffer)
    return Array(buffer, lengths, name, block.device if block else 0)
