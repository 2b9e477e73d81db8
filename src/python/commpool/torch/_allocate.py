"""commpool's `empty` and `allocate`, which also know torch's scopes, streams and devices."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch

import commpool
from commpool import arrays, blocks
from commpool.handles import Device, Stream, device_number, stream_handle
from commpool.pool import checked
from commpool.sizes import Size

from . import _router


def _place(device: Optional[Device], stream: Stream) -> tuple[int, Stream]:
    number = torch.cuda.current_device() if device is None else device_number(device)
    return number, torch.cuda.current_stream(number).cuda_stream if stream is None else stream


def allocate(size: Size, stream: Stream = None, device: Optional[Device] = None, *,
             alignment: Size = 1) -> commpool.Buffer:
    """Like commpool.allocate, but torch's scopes catch it too; the innermost scope wins.

    Args:
      stream: None is torch's current one.
      device: None is torch's current one.
    """
    (number, stream), router = _place(device, stream), _router.loaded()

    def source(count: int) -> blocks.Source:
        pool = router.caught_by(number, count, stream_handle(stream)) if router is not None else 0
        return blocks.of_pool(pool) if pool else blocks.of_device(number)

    return blocks.allocated(source, size, alignment, stream)


def empty(shape: Union[int, tuple[int, ...]], dtype: Any = "float32", *, device: Optional[Device] = None,
          stream: Stream = None, pool: Optional[commpool.Pool] = None) -> commpool.Array:
    """Like commpool.empty, but torch's scopes catch it too. Device and stream are torch's current ones."""
    if pool is not None and device is None:
        device = checked(pool, "empty").device
    number, stream = _place(device, stream)
    if pool is None:
        return arrays.made(allocate, shape, dtype, number, stream)
    with torch.cuda.device(number):  # a default stream is meant to be its own
        return commpool.empty(shape, dtype, device=number, stream=stream, pool=pool)
