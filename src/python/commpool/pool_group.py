"""PoolGroup: the pools of several ranks that one thread owns, for their collective calls.

Each method documents only what commpool.h does not say of the function that it calls.
"""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, Iterator, Optional, Sequence

from . import options
from ._library import check, library
from .errors import CommpoolError, InvalidArgument
from .handles import Communicator, Device, communicator_handle
from .pool import Pool
from .sizes import Size, parse_size
from .sleeping import woken


class _Member(Pool):
    """A pool of a group, which makes all of them in one call."""

    __slots__ = ("c_options",)

    def _create(self, c_options: Any) -> None:
        self.c_options = c_options

    def _learn(self, mode: Optional[str] = None) -> None:
        pass

    def made(self, handle: int) -> None:
        """The group has made it."""
        self.handle = handle
        self._finalizer = weakref.finalize(self, library.commpool_pool_destroy, handle)
        super()._learn("symmetric" if self.c_options.symmetric_across else None)


class PoolGroup:
    """The pools of several ranks of one thread, as ncclCommInitAll makes their communicators.

        with commpool.PoolGroup("gradients", devices=[0, 1], symmetric_across=communicators, reserve="1GiB") as pools:
            first = pools[0].allocate("64MiB", streams[0])
            second = pools[1].allocate("64MiB", streams[1])

    A rank's own collective call would wait for the thread's other ranks, and is refused: the group's take all of them.
    What is of one rank (`allocate`, `use_pool`, `stats`, `window_of`, `abandon`) is the pool's, as ever.
    """

    def __init__(self, name: str = "pool", *, devices: Sequence[Device], symmetric_across: Sequence[Communicator],
                 reserve: Optional[Size] = None, **words: Any) -> None:
        """Makes the pools.

        Args:
          name: of each.
          devices: of the ranks.
          symmetric_across: the home communicator as each of the ranks has it.
          reserve: free memory to make at once, in each.
          words: as of Pool, the same for all.
        """
        self._refuse_other_count("devices", len(devices), symmetric_across)
        self._pools = [_Member(name, device=device, symmetric_across=communicator, **words)
                       for device, communicator in zip(devices, symmetric_across)]
        handles = self._numbers()
        kind = type(self._pools[0].c_options) if self._pools else type(options.default_pool_options())
        many = (kind * len(self._pools))(*(pool.c_options for pool in self._pools))
        check(library.commpool_pools_create(many, len(self._pools), handles))
        for pool, handle in zip(self._pools, handles):
            pool.made(handle)
        if reserve is not None:
            try:
                self.reserve(reserve)
            except CommpoolError:
                self.destroy()
                raise

    def __len__(self) -> int:
        return len(self._pools)

    def __getitem__(self, rank: int) -> Pool:
        return self._pools[rank]

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools)

    def reserve(self, size: Size) -> None:
        """Makes free memory for at least `size` in one piece, in each pool."""
        check(library.commpool_pools_reserve(*self._all(), parse_size(size)))

    def reclaim(self) -> list[int]:
        """Lets deferred frees take effect that every rank has made; returns the bytes of each pool."""
        counts = self._numbers()
        check(library.commpool_pools_reclaim(*self._all(), counts))
        return list(counts)

    def trim(self, keep: Size = 0) -> list[int]:
        """Gives free segments back until at most `keep` stay reserved; returns the bytes of each pool."""
        counts = self._numbers()
        check(library.commpool_pools_trim(*self._all(), parse_size(keep, "keep"), counts))
        return list(counts)

    def verify(self) -> None:
        """Compares the calls so far between the ranks."""
        check(library.commpool_pools_verify(*self._all()))

    def sleep(self, keep: options.KeepWord = "discard", *, graphs: options.GraphsWord = "refused") -> None:
        """As `Pool.sleep`."""
        check(library.commpool_pools_sleep(*self._all(), options.number_of("keep", keep),
                                           options.number_of("graphs", graphs)))

    def wake(self) -> None:
        """As `Pool.wake`."""
        woken(library.commpool_pools_wake(*self._all()))

    def register_with(self, communicators: Sequence[Communicator]) -> None:
        """As `Pool.register_with`: one for each pool, of its rank, or None."""
        self._with(library.commpool_pools_register_with, communicators)

    def deregister(self, communicators: Sequence[Communicator]) -> None:
        """As `Pool.deregister`."""
        self._with(library.commpool_pools_deregister, communicators)

    def rehome(self, communicators: Sequence[Communicator]) -> None:
        """As `Pool.rehome`."""
        self._with(library.commpool_pools_rehome, communicators)

    def close(self) -> None:
        """As `Pool.close`."""
        check(library.commpool_pools_close(*self._all()))

    def destroy(self) -> None:
        """As `Pool.destroy`, of each."""
        for pool in self._pools:
            pool.destroy()

    def _all(self) -> tuple[Any, int]:
        return (ctypes.c_uint64 * len(self._pools))(*(pool.handle for pool in self._pools)), len(self._pools)

    def _numbers(self) -> Any:
        return (ctypes.c_uint64 * len(self._pools))()

    def _with(self, call: Any, communicators: Sequence[Communicator]) -> None:
        self._refuse_other_count("pools", len(self._pools), communicators)
        handles, count = self._all()
        joined = (ctypes.c_void_p * count)(*(communicator_handle(communicator, pool.device)
                                             for communicator, pool in zip(communicators, self._pools)))
        check(call(handles, joined, count))

    @staticmethod
    def _refuse_other_count(what: str, count: int, communicators: Sequence[Communicator]) -> None:
        if len(communicators) != count:
            raise InvalidArgument(f"a group of {count} {what} and {len(communicators)} communicators")

    def __enter__(self) -> PoolGroup:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.destroy()

    def __repr__(self) -> str:
        return f"<commpool.PoolGroup of {', '.join(repr(pool) for pool in self._pools)}>"
