"""Recordings of what happens in pools, for `commpool report`."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Union

from . import _abi, options
from ._abi import StacksWord as StacksWord
from ._library import library
from .sizes import Size, parse_size


class Recording:
    """A recording that has begun. It ends with `end()`, with its `with` block, or as the process exits."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = True

    def end(self) -> None:
        """Writes what is left. Nothing where it has ended."""
        if self._open:
            library.record(None)
        self._open = False

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def record(directory: Union[str, os.PathLike[str]], *, limit: Optional[Size] = None, stacks: StacksWord = "none",
           pool: Optional[int] = None) -> Recording:
    """Records what happens in all pools from now on, or in one: `Pool.record`. `commpool report DIRECTORY` shows it.

    Without a change of the program: COMMPOOL_RECORD=DIRECTORY.

    Args:
      directory: made where it is missing. Each process gets a file of its own there.
      limit: of that file; then the oldest goes. 256 MiB where it is left out.
      stacks: "python": where the program asked, for each block above 1 MiB: some microseconds a block. "native": the
        same of code in C or C++.
      pool: the handle of the one pool to record.

    Raises:
      FailedPrecondition: a recording of this process is under way.
      InvalidArgument: the path is no directory, or the limit is below 1 MiB.
      OutOfMemory: the disk is full. A disk that fills up later loses a part of the recording, and no call fails.
    """
    given: Any = _abi.CRecordOptions()
    given.directory = options.text_of("directory", os.fspath(directory))
    given.stacks = options.number_of("stacks", stacks)
    if limit is not None:
        given.limit_bytes = parse_size(limit)
    if pool is not None:
        given.pool = pool
    library.record(ctypes.byref(given))
    return Recording()
