"""What a pool keeps of a tensor while it sleeps, as NumPy and DLPack take it on the CPU: no copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Optional

from . import _dlpack
from ._library import library
from ._owners import Owner
from .arrays import dlpack_tensor, kind_of, type_name, typestr_of
from .errors import InvalidArgument
from .handles import Pointer, pointer_of

if TYPE_CHECKING:
    from .pool import Pool

_CPU = (1, 0)  # kDLCPU


def _description(tensor: Any) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor, an Array, or a Buffer, which is bytes."""
    if hasattr(tensor, "shape") and hasattr(tensor, "dtype"):
        if not getattr(tensor, "is_contiguous", lambda: True)():
            raise InvalidArgument("kept takes a tensor that is contiguous: ask for the one that this is a view of")
        return tuple(map(int, tensor.shape)), type_name(tensor.dtype)
    if hasattr(tensor, "nbytes"):
        return (int(tensor.nbytes),), "uint8"
    raise InvalidArgument(f"kept takes a tensor, an Array or a Buffer, not {tensor!r}")


class Kept(Owner):
    """A copy on the host of what a tensor held as its pool fell asleep, for reading: numpy.asarray(kept), or
    torch.from_dlpack(kept).

    What is made of it is valid until the pool wakes, or, retained, until it next sleeps or the tensor is freed. After
    that nothing is made of it any more, and what was made must not be looked at.
    """

    __slots__ = ("pool", "source", "shape", "dtype", "__weakref__")

    def __init__(self, pool: Pool, tensor: Pointer) -> None:
        """Of a tensor of the pool, which stays the program's."""
        self.pool, self.source = pool, pointer_of(tensor)
        self.shape, self.dtype = _description(tensor)
        self.pointer  # noqa: B018  raises where there is no copy

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * kind_of(self.dtype).bits // 8

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
        return {"shape": self.shape, "typestr": typestr_of(self.dtype, "__array_interface__"),
                "data": (self.pointer, True), "strides": None, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return _CPU

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule; nothing has to be waited for."""
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError(f"the copy lies on the CPU, and not on {dl_device}")
        if copy:
            raise BufferError("commpool hands its memory over and makes no copies")
        versioned = max_version is not None and max_version[0] >= _dlpack.VERSION[0]
        return _dlpack.capsule(dlpack_tensor(self.pointer, _CPU, self.shape, self.dtype), versioned, self, int)

    def __repr__(self) -> str:
        return f"<commpool.Kept {'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype} of pool {self.pool.name!r}>"
