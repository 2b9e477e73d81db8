"""`empty` and `allocate` of commpool that know torch's scopes, streams and devices."""

from __future__ import annotations

import math
from typing import Any, Optional, Union

import torch

import commpool
from commpool import arrays
from commpool.handles import Device, Stream, device_number, stream_handle
from commpool.sizes import Size, parse_size

from . import _router


def _caught_by(device: int, nbytes: int) -> int:
    router = _router.loaded()
    return router.caught_by(device, nbytes) if router is not None else 0


def _nbytes(shape: Union[int, tuple[int, ...]], dtype: Any) -> int:
    lengths = shape if isinstance(shape, (tuple, list)) else (shape,)
    return math.prod(map(int, lengths)) * arrays._TYPES[arrays._type_name(dtype)].bits // 8


class _Handle(commpool.Pool):
    """A pool by its number: it is another object's."""

    def __init__(self, handle: int, device: int) -> None:
        self.handle, self.name, self.device, self.backing, self.mode = handle, "scope", device, "vmm", "fixed"


def _place(device: Optional[Device], stream: Stream) -> tuple[int, int]:
    number = torch.cuda.current_device() if device is None else device_number(device)
    return number, torch.cuda.current_stream(number).cuda_stream if stream is None else stream_handle(stream)


def allocate(size: Size, stream: Stream = None, device: Optional[Device] = None, *,
             alignment: Size = 1) -> commpool.Buffer:
    """As commpool.allocate, from the innermost scope of torch's or of commpool's.

    Args:
      stream: None is torch's current one.
      device: None is torch's current one.
    """
    number, handle = _place(device, stream)
    pool = _caught_by(number, parse_size(size))
    if pool:
        return _Handle(pool, number).allocate(size, handle, alignment=alignment)
    return commpool.allocate(size, handle, number, alignment=alignment)


def empty(shape: Union[int, tuple[int, ...]], dtype: Any = "float32", *, device: Optional[Device] = None,
          stream: Stream = None, pool: Optional[commpool.Pool] = None) -> commpool.Array:
    """As commpool.empty, from the innermost scope of torch's or commpool's; device and stream are torch's current."""
    number, handle = _place(pool.device if pool is not None and device is None else device, stream)
    if pool is None:
        caught = _caught_by(number, _nbytes(shape, dtype))
        pool = _Handle(caught, number) if caught else None
    return commpool.empty(shape, dtype, device=number, stream=handle, pool=pool)
