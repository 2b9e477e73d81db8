"""Buffers in a pool that collectives use in turn. Which one is next depends only on how many were taken."""

from __future__ import annotations

import torch
from torch.utils.dlpack import from_dlpack

import commpool
from commpool import errors
from commpool.sizes import format_size


def bytes_of(pool: commpool.Pool, nbytes: int) -> torch.Tensor:
    """Memory of a pool as a tensor of bytes. It goes back with the last tensor over it."""
    stream = torch.cuda.current_stream(pool.device)
    made: torch.Tensor = from_dlpack(pool.empty(nbytes, "uint8", stream=stream))
    return made


class _Buffer:
    """Memory that stays, and knows whether a tensor is over it."""

    def __init__(self, pool: commpool.Pool, nbytes: int) -> None:
        self.stream = torch.cuda.current_stream(pool.device)
        self.memory = bytes_of(pool, nbytes)
        self._storage = self.memory.untyped_storage()._cdata
        self._shapes: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._users = self._count()

    def _count(self) -> int:
        return torch._C._storage_Use_Count(self._storage)

    def busy(self) -> bool:
        return self._count() > self._users

    def move_to(self, stream: torch.cuda.Stream) -> None:
        """Its next user works on `stream`, after the work of its last user."""
        stream.wait_stream(self.stream)
        commpool.record_stream(self.memory, stream)
        self.stream = stream

    def tensor(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A new tensor over the first bytes of an unused buffer."""
        shape = self._shapes.get((elements, dtype))
        if shape is None:
            with torch.no_grad():
                shape = self.memory[:elements * dtype.itemsize].view(dtype)
            self._shapes[elements, dtype] = shape
            self._users = self._count()
        return shape.detach()


class Ring:
    """A number of equal buffers that are taken in turn.

    If all ranks take them in the same order, they get equal offsets, whatever the timing on each. A buffer is free when
    its last tensor is gone. As with torch's allocator, the stream that took it may then write to it again.
    """

    def __init__(self, pool: commpool.Pool, what: str, buffers: int, nbytes: int) -> None:
        """Takes the memory from the pool. For a symmetric pool, every rank must call it at the same place."""
        self.pool, self.what, self.nbytes, self.taken, self._device = pool, what, nbytes, 0, pool.device
        self._buffers = [_Buffer(pool, nbytes) for _ in range(buffers)]
        self._pointers = frozenset(buffer.memory.data_ptr() for buffer in self._buffers)

    @property
    def buffers(self) -> int:
        """The number of buffers."""
        return len(self._buffers)

    @property
    def total_bytes(self) -> int:
        """The bytes of the pool that the ring always holds."""
        return self.nbytes * len(self._buffers)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins at the start of a buffer."""
        return tensor.data_ptr() in self._pointers

    def take(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor over the next buffer, for work on the current stream.

        Raises:
          FailedPrecondition: the buffer is still in use, or too small. All ranks of one program get the same error.
        """
        nbytes = elements * dtype.itemsize
        if nbytes > self.nbytes:
            raise errors.FailedPrecondition(f"{self.what} needs {format_size(nbytes)}, and its buffers in "
                                            f"{self.pool!r} have {format_size(self.nbytes)}: the model was changed "
                                            "after it was wrapped; wrap it again")
        if not self._buffers:
            raise errors.FailedPrecondition(f"the buffers of {self.what} were given back to {self.pool!r}")
        buffer = self._buffers[self.taken % len(self._buffers)]
        if buffer.busy():
            raise errors.FailedPrecondition(f"{self.what} number {self.taken} needs a buffer, and all {self.buffers} "
                                            f"in {self.pool!r} are in use: more modules are gathered at a time than "
                                            "was known when the model was wrapped. Where a checkpoint holds several, "
                                            "it gathers all before one lets go: checkpoint each by itself. Wrap after "
                                            f"setting what is prefetched, or give buffers={self.buffers + 1} or more")
        self.taken += 1
        if torch._C._cuda_getCurrentRawStream(self._device) != buffer.stream.cuda_stream:
            buffer.move_to(torch.cuda.current_stream(self._device))
        return buffer.tensor(elements, dtype)

    def free(self) -> None:
        """Gives the buffers back to the pool, each when its last tensor is gone."""
        self._buffers.clear()
        self._pointers = frozenset()
