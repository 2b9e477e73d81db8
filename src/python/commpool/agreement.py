"""Python functions by which a symmetric pool's ranks agree without TCP, and that hear of a lost rank."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Callable, Sequence, Union

from . import _abi, errors
from ._library import for_ever
from .sizes import index_of

Bytes = Union[bytes, bytearray, memoryview]


class RankMissing(Exception):
    """A program's own all-gather raises it when a rank did not come. The pool's error then names the rank."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} did not come")
        self.rank = index_of(rank, "rank", 31)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """An all-gather over something that the program already has: mpi4py, a torch store, files.

    `all_gather(sent)` gets the bytes of this rank. It returns those of every rank, rank 0 first: a sequence of `ranks`
    byte strings, each as long as `sent`. Only collective calls call it, on their thread.
    """

    all_gather: Callable[[bytes], Sequence[Bytes]]
    ranks: int

    def __post_init__(self) -> None:
        if not callable(self.all_gather):
            raise errors.InvalidArgument(f"all_gather {self.all_gather!r} is no function")
        index_of(self.ranks, "ranks", 31)

    def as_c(self) -> Any:
        """The function for the C ABI."""

        def gather(sent: int, received: int, count: int, _context: Any) -> int:
            try:
                parts = [bytes(part) for part in self.all_gather(ctypes.string_at(sent, count))]
                if len(parts) != self.ranks or any(len(part) != count for part in parts):
                    raise errors.InvalidArgument(f"all_gather returned parts of {[len(part) for part in parts]} bytes, "
                                                 f"and {self.ranks} ranks sent {count} each")
                ctypes.memmove(received, b"".join(parts), count * self.ranks)
                return 0
            except BaseException as error:  # no exception may pass through C
                errors.raised.exception = error
                return -2 - error.rank if isinstance(error, RankMissing) else 1

        return for_ever(_abi.AllGather(gather))


def on_lost_rank(function: Callable[[int, bool], None]) -> Any:
    """`function(rank, in_flight)` for the C ABI: see commpool_on_lost_rank."""

    def lost(rank: int, in_flight: int, _context: Any) -> None:
        function(rank, in_flight != 0)  # ctypes hands an exception to sys.unraisablehook

    return for_ever(_abi.OnLostRank(lost))
