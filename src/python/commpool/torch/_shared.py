"""Pools of other processes, and their blocks as torch's tensors."""

from __future__ import annotations

import contextlib
from typing import Union

import torch
from torch.utils.dlpack import from_dlpack

import commpool
from commpool.handles import Stream


def stream_of(device: int, stream: Stream) -> Stream:
    """The stream; None is torch's current one of the device."""
    return torch.cuda.current_stream(device) if stream is None else stream


class SharedBlock(commpool.SharedBlock):
    """Like commpool.SharedBlock; `read()` without a stream is of torch's current one."""

    __slots__ = ()

    def read(self, stream: Stream = None) -> contextlib.AbstractContextManager[commpool.SharedBlock]:
        """Around the submission of work that reads the block: see commpool.SharedBlock.read."""
        return super().read(stream_of(self.device, stream))

    def tensor(self, shape: Union[int, tuple[int, ...]], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the block's first bytes, without a copy, which keeps the block. What reads it lies in `read()`.

        Raises:
          InvalidArgument: the block has fewer bytes.
        """
        return from_dlpack(self.array(shape, dtype))


class SharedPool(commpool.SharedPool):
    """Like commpool.SharedPool, for torch: a block's own stream is torch's current one as it is asked for."""

    __slots__ = ()

    def block(self, ticket: str, stream: Stream = None, *, mutable: bool = True) -> SharedBlock:
        """A block of the pool: see commpool.SharedPool.block."""
        return self._block(SharedBlock, ticket, stream_of(self.device, stream), mutable)
