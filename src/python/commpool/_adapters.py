"""What the adapters of other libraries share."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Optional

from . import errors
from ._library import last_error, library
from .blocks import block_of
from .pool import Pool


def needed(name: str) -> Any:
    """The library that an adapter is for.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        adapter = name.partition(".")[0]
        raise ImportError(f"commpool.{adapter} is for {name}, which cannot be imported: {error}") from error


def checked(pool: Optional[Pool]) -> Optional[Pool]:
    """The pool that an adapter was given; None stands for scopes."""
    if pool is not None and not isinstance(pool, Pool):
        raise errors.InvalidArgument(f"{pool!r} is no commpool.Pool; None takes what scopes catch")
    return pool


def give_back(library_name: str, pointer: int, pool: Optional[Pool] = None, stream: Optional[int] = None) -> None:
    """Frees a block for a caller that cannot be raised to: what fails is said on stderr, and changes nothing.

    Args:
      library_name: whose free it is, for the sentence.
      pool: whose block it has to be; None for any.
      stream: what the block was used on last, where the library tells.
    """
    why = _refused(pointer, pool, stream)
    if why:
        print(f"commpool: {library_name} cannot free {pointer:#x}: {why}", file=sys.stderr)


def _refused(pointer: int, pool: Optional[Pool], stream: Optional[int]) -> str:
    if pool is not None or stream is not None:
        block = block_of(pointer)
        if block is None:
            return "it is in no live block: it was freed before, or is another allocator's"
        if pool is not None and block.pool not in (0, pool.handle):
            return "it is a block of another pool, which keeps it"
        # The legacy stream is 1 there; a stream that is the block's own needs no fence.
        if stream is not None and (stream or 1) != block.stream and library.commpool_record_stream(pointer, stream):
            return last_error()
    return last_error() if library.commpool_free(pointer) else ""


def allocate(pool: Optional[Pool], device: int, nbytes: int, stream: int) -> int:
    """The start of a block of the pool, or of what the thread's scopes catch."""
    return (library.pool_allocate(pool.handle, nbytes, stream) if pool is not None else
            library.allocate(device, nbytes, stream)) or 0
