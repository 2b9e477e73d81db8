"""PoolGroup: the pools of several ranks that one thread owns, for their collective calls.

commpool.h says more of the functions that the methods call, and Pool what they raise.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

from . import registering, registrars
from ._library import library
from .errors import InvalidArgument, refusing
from .handles import Communicator, Device, communicator_handle, home_handle
from .pool import Pool, PoolOptions, make, telling
from .sizes import Size, parse_size
from .together import Together

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Member(Pool):
    """A pool of a group. The group makes all its pools in one call."""

    __slots__ = ("c_options",)

    def _create(self, c_options: Any) -> None:
        self.c_options = c_options

    def _telling(self, symmetric_across: Communicator, all_gather: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # the group does this, for all ranks of its thread


class PoolGroup(Together):
    """The pools of several ranks of one thread, as ncclCommInitAll makes their communicators.

        with commpool.PoolGroup("gradients", devices=[0, 1], symmetric_across=communicators, reserve="1GiB") as pools:
            first = pools[0].allocate("64MiB", streams[0])
            second = pools[1].allocate("64MiB", streams[1])

    A collective call of one rank would wait for the thread's other ranks, so it is refused: the group's calls take all
    of them. Calls for one rank (`allocate`, `use_pool`, `stats`, `window_of`, `abandon`) go to its pool.
    """

    def __init__(self, name: str = "pool", *, devices: Sequence[Device], symmetric_across: Sequence[Communicator],
                 reserve: Optional[Size] = None, **words: Unpack[PoolOptions]) -> None:
        """Makes the pools.

        Args:
          name: of each.
          devices: of the ranks.
          symmetric_across: the home communicator as each of the ranks has it.
          reserve: free memory to make at once, in each.
          words: as of Pool, the same for all.
        """
        if symmetric_across is None:
            home_handle(None, -1)  # raises, as for a pool
        # All of this thread's ranks tell the others in one call, for which each needs a communicator of its own.
        apart = len(set(map(communicator_handle, symmetric_across))) == len(symmetric_across) >= len(devices)
        with telling(symmetric_across if apart else [], words.get("all_gather")):
            self._refuse_unfit("devices", len(devices), symmetric_across)
            at_once = None if reserve is None else parse_size(reserve, "reserve")
            self._pools = [_Member(name, device=device, symmetric_across=communicator, **words)
                           for device, communicator in zip(devices, symmetric_across)]
        make(self._pools, [pool.c_options for pool in self._pools])
        self._reserve_at_once(at_once)

    def __len__(self) -> int:
        return len(self._pools)

    def __getitem__(self, rank: int) -> Pool:
        return self._pools[rank]

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools)

    def _members(self) -> Sequence[Pool]:
        return self._pools

    def reclaim(self) -> list[int]:
        """Lets deferred frees take effect that every rank has made; returns the bytes of each pool."""
        return self._counted(library.pools_reclaim)

    def trim(self, keep: Size = 0) -> list[int]:
        """Gives free segments back until at most `keep` stay reserved; returns the bytes of each pool."""
        return self._trimmed(keep)

    def register_with(self, communicators: Sequence[Communicator]) -> None:
        """Like `Pool.register_with`: one communicator for each pool, of its rank, or None."""
        self._with(library.pools_register_with, communicators)

    def deregister(self, communicators: Sequence[Communicator]) -> None:
        """Like `Pool.deregister`."""
        self._with(library.pools_deregister, communicators)

    def add_registrar(self, given: Sequence[Optional[registrars.Registrar]]) -> None:
        """Like `Pool.add_registrar`: one registrar for each pool, of its rank, or None."""
        registering.add([pool.handle for pool in self._pools], given)

    def remove_registrar(self, name: str) -> None:
        """Like `Pool.remove_registrar`."""
        registering.remove([pool.handle for pool in self._pools], name)

    def rehome(self, communicators: Sequence[Communicator]) -> None:
        """Like `Pool.rehome`."""
        self._with(library.pools_rehome, communicators)

    def destroy(self) -> None:
        """Like `Pool.destroy`, for each pool."""
        for pool in self._pools:
            pool.destroy()

    def _with(self, call: Any, communicators: Sequence[Communicator]) -> None:
        with refusing(lambda _: self._collective(call, communicators=[None] * len(self._pools))):
            self._refuse_unfit("pools", len(self._pools), communicators)
        self._collective(call, communicators=communicators)

    @staticmethod
    def _refuse_unfit(what: str, count: int, communicators: Sequence[Communicator]) -> None:
        given = [handle for handle in map(communicator_handle, communicators) if handle]
        if len(communicators) != count or len(set(given)) != len(given):
            raise InvalidArgument(f"a group of {count} {what} and {len(communicators)} communicators: each has its own")

    def __repr__(self) -> str:
        return f"<commpool.PoolGroup of {', '.join(repr(pool) for pool in self._pools)}>"
