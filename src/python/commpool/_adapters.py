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
    """Imports the library that an adapter is for.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        adapter = name.partition(".")[0]
        raise ImportError(f"commpool.{adapter} is for {name}, which cannot be imported: {error}") from error


def checked(pool: Optional[Pool]) -> Optional[Pool]:
    """Checks the pool that an adapter was given; None stands for scopes."""
    if pool is not None and not isinstance(pool, Pool):
        raise errors.InvalidArgument(f"{pool!r} is no commpool.Pool; None takes what scopes catch")
    return pool


def give_back(library_name: str, pointer: int, pool: Optional[Pool] = None, stream: Optional[int] = None) -> None:
    """Frees a block for a caller that no exception can reach: a failure is printed to stderr and changes nothing.

    Args:
      library_name: the library that frees, for the sentence.
      pool: the pool that must own the block; None: any pool.
      stream: the last stream that used the block, if the library tells it.
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
        if stream is not None and library.commpool_record_stream(block.pointer, stream):
            return last_error()
    return last_error() if library.commpool_free(pointer) else ""


def allocate(pool: Optional[Pool], device: int, nbytes: int, stream: int) -> int:
    """Allocates from the pool, or from whatever the thread's scopes catch; returns the block's start."""
    return (library.pool_allocate(pool.handle, nbytes, stream) if pool is not None else
            library.allocate(device, nbytes, stream)) or 0
