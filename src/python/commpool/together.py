"""The calls that take one pool, or several pools of one thread. They are COLLECTIVE for symmetric pools."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Iterable, Optional, Sequence, TypeVar, Union

from . import options
from ._library import Owner, library
from .errors import CommpoolError, refusing
from .handles import Communicator, Pointer, communicator_handle, handle_array
from .sizes import MOST_BYTES, Size, parse_size
from .sleeping import waking

_Self = TypeVar("_Self", bound="Together")


class Together(Owner):
    """The common part of Pool and PoolGroup. As a context manager they are closed and destroyed at the end."""

    __slots__ = ()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, _memo: Any) -> _Self:
        """Itself: a copy of a model that holds a pool holds the same one."""
        return self

    def _members(self) -> Sequence[Any]:
        raise NotImplementedError

    def _collective(self, call: Any, *arguments: Any,
                    communicators: Optional[Sequence[Communicator]] = None) -> None:
        members = self._members()
        handles = handle_array(pool.handle for pool in members)
        joined = [] if communicators is None else [(ctypes.c_void_p * len(members))()]
        if communicators is not None:
            with refusing(lambda _: call(handles, *joined, len(members))):  # none, where the other ranks pass one
                joined[0][:] = [communicator_handle(communicator, pool.device)
                                for communicator, pool in zip(communicators, members)]
        call(handles, *joined, len(members), *arguments)

    def _counted(self, call: Any, *arguments: Any) -> list[int]:
        """Makes a call that returns one number for each pool."""
        counts = (ctypes.c_uint64 * len(self._members()))()
        self._collective(call, *arguments, counts)
        return list(counts)

    def _trimmed(self, keep: Size) -> list[int]:
        with refusing(lambda _: self._counted(library.pools_trim, MOST_BYTES)):
            nbytes = parse_size(keep, "keep")
        return self._counted(library.pools_trim, nbytes)

    def reserve(self, size: Size) -> None:
        """Makes free memory for at least `size` in one piece, in each pool.

        Raises:
          OutOfMemory: a limit or the device leaves no room, on any rank.
          Disagreement: ranks ask for different sizes, or called in different orders.
        """
        with refusing(lambda _: self._collective(library.pools_reserve, MOST_BYTES)):
            nbytes = parse_size(size)
        self._collective(library.pools_reserve, nbytes)

    def _reserve_at_once(self, size: Optional[Size]) -> None:
        """Reserves what the program asked for with new pools. If that fails, there are no pools."""
        try:
            if size is not None:
                self.reserve(size)
        except CommpoolError:
            self.destroy()
            raise

    def map_peers(self) -> None:
        """Maps the segments of symmetric pools on all ranks, for `peers_of`; again after a reserve that grew one.

        Raises:
          NotSupported: on all ranks, where they are on several hosts or in several containers.
        """
        self._collective(library.pools_map_peers)

    def verify(self) -> None:
        """Compares the calls so far between the ranks.

        Raises:
          Disagreement: they differ; the message names the first call that does.
        """
        self._collective(library.pools_verify)

    def sleep(self, keep: options.KeepWord = "discard", *, graphs: options.GraphsWord = "refused",
              directory: Union[None, str, os.PathLike[str]] = None, only: Optional[Iterable[Pointer]] = None,
              retain: bool = False, constant: Iterable[Pointer] = (), level: Optional[int] = None) -> None:
        """Gives the physical memory back; addresses and blocks stay, and blocks may be freed at any time.

        What is kept `wake` copies back, and `Pool.kept` reads meanwhile.

        Args:
          keep: "host" copies what live blocks hold to pinned memory of the host, "pageable" to memory of the host that
            goes back to the system at once, "files" to a file for each segment.
          directory: of "files", on a disk.
          only: tensors that are kept; all other blocks are discarded.
          retain: what is kept stays once the pool is awake, at its address, and the next sleep renews it.
          constant: tensors that do not change: copied once, where `retain` keeps their copies.
          graphs: "refused" refuses where a CUDA graph that captured with the pool could go wrong: with a live one, or a
            registered pool, unless NCCL_LOCAL_REGISTER and NCCL_GRAPH_REGISTER are 0 on all ranks. The program may say
            that such graphs hold "no_collectives", or are "discarded" (not replayed again).
          level: vLLM's word instead of `keep`: 1 is "host", 2 "discard".

        Raises:
          NotSupported: the backing is not "vmm".
          InvalidArgument: options exclude each other, the directory is none or lies in memory, or a tensor is in no
            pool.
          FailedPrecondition: a capture is open, or graphs are a reason to refuse.
          OutOfMemory: the host, or the disk, has no room for what is kept; the pool is awake.
        """
        options.sleep_by(lambda given: self._collective(library.pools_sleep_keeping, given), keep, graphs, directory,
                         only, retain, constant, level)

    def wake(self, *, graphs: options.GraphsWord = "refused", retain: Optional[bool] = None) -> None:
        """Makes memory at the same addresses, with what was kept, and windows at their places.

        Args:
          graphs: unless "refused", windows may come elsewhere: graphs that captured collectives are stale then.
          retain: whether what is kept stays, this time and later; None: as the sleep said. Files go.

        Raises:
          OutOfMemory: on this rank or another; the pool sleeps on, with what was kept.
          FailedPrecondition: on all ranks, where windows came elsewhere on one; or a file with what was kept is gone,
            short, or was changed. The pool sleeps on.
          CommpoolError: after `map_peers`, where other ranks' memory cannot be mapped: the pool is awake without it.
        """
        kept = options.number_of("retain", "as_before" if retain is None else "copies" if retain else "nothing")
        with refusing(lambda _: self._collective(library.pools_wake, options.NO_WORD, kept)):
            accepted = options.number_of("graphs", graphs)
        with waking():
            self._collective(library.pools_wake, accepted, kept)

    def close(self) -> None:
        """The clean end: deregisters everywhere and gives memory back. Collective for symmetric pools.

        Raises:
          FailedPrecondition: a symmetric pool has live blocks or graphs, on any rank; nothing is done.
          DeadlineExceeded: the device is busy for longer than deadline_ms: nothing is given back.
        """
        self._collective(library.pools_close)

    def destroy(self) -> None:
        """Ends the handles, on this rank alone; segments live until their last block is freed."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: Any) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.destroy()
