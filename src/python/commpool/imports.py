"""Pools of other processes, by their tickets: what an import of one has, and blocks of it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from typing import Any, Iterator, NamedTuple, Optional, TypeVar, Union

from . import _abi, _driver, options
from ._abi import AddressesWord, StatusCode
from ._library import Owner, library
from ._submission import Submission, do_or_leave, try_left
from .arrays import Array, of_buffer
from .blocks import Buffer
from .errors import CommpoolError, DriverError, FailedPrecondition, NotFound
from .handles import Device, Stream, known_device, place_on, stream_handle
from .sizes import format_size, index_of

_GONE = (StatusCode.OK, StatusCode.NOT_FOUND)
_DEVICE = 5  # the place in a ticket of the PCI address of the pool's device: see ticket.h


class SharedBlock(Buffer):
    """A block of another process's pool, in this process's addresses; made by `SharedPool.block`.

        with block.read(stream):
            ...  # submit work on `stream` that reads it

    It is let go by `free()`, at the end of a `with`, or with its last name. Its owner's memory serves again once the
    last process has let go of it, and the work on `stream` so far is done.
    """

    __slots__ = ("pool", "_mutable", "_place", "_letting_go")

    def __init__(self, pool: SharedPool, pointer: int, nbytes: int, stream: Stream, mutable: bool) -> None:
        """Takes over a block that the import holds. The stream's object is kept until the block has gone."""
        super().__init__(pointer, pointer, nbytes, stream_handle(stream), None)
        self.pool, self._mutable = pool, mutable
        self._place = place_on(stream, pool.device)
        self._letting_go = weakref.finalize(self, do_or_leave,
                                            functools.partial(_let_go, pool.handle, pointer, stream))

    @property
    def device(self) -> int:
        """The device that reads and writes it here."""
        return self.pool.device

    def read(self, stream: Stream = None) -> contextlib.AbstractContextManager[SharedBlock]:
        """Around the submission of work that reads the block. It begins between two updates of the owner's, and the
        next update waits until that work is done.

        Args:
          stream: of that work; None is the block's own. A default stream is the one of the import's device.

        Raises:
          DeadlineExceeded: an update does not end within the import's deadline_ms, or the pool sleeps on.
          RemoteFailure: the owner ended within an update: what is there is neither old nor new.
          FailedPrecondition: the stream captures. One that begins to capture within the read keeps it open until the
            capture has ended, and this process begins another read or update.
        """
        of_work: Stream = self.stream if stream is None else stream
        if not self._mutable:
            return self._reading_freely(self._place if stream is None else place_on(stream, self.device))
        place_on(of_work, self.device)
        block = self.pool.handle, self.pointer
        return Submission(self, self.device, of_work, functools.partial(library.read_begin, *block),
                          functools.partial(library.read_end, *block))

    @contextlib.contextmanager
    def _reading_freely(self, place: _driver.Place) -> Iterator[SharedBlock]:
        if self.pointer == 0:
            raise NotFound("the block was let go: it was freed, or its import closed")
        try:
            yield self
        finally:
            if place != self._place:
                self._wait_for(place)

    def _wait_for(self, place: _driver.Place) -> None:
        """Letting the block go waits for its own stream alone."""
        try:
            if not _driver.captures(self.device, place.handle, self.stream):
                _driver.make_wait(self._place, place)
        except DriverError:  # the stream was destroyed, and its work may run on
            _driver.synchronize(self.device)
            raise

    def array(self, shape: Union[int, tuple[int, ...]], dtype: Any = "uint8") -> Array:
        """An array of the block's first bytes, for DLPack and `__cuda_array_interface__`, which keeps the block. What
        reads it on a stream lies in `read` of that stream: letting the block go waits for no other work.

        Raises:
          InvalidArgument: the block has fewer bytes.
        """
        return of_buffer(self, shape, dtype, self.device, self._place)

    def free(self) -> None:
        """Lets the block go now; raises if that fails, and may be called again then."""
        kept = self._letting_go.detach()
        if kept is not None:
            try:
                library.import_release(self.pool.handle, self._block, self.stream)
            except NotFound:
                raise
            except CommpoolError:  # this process has the block still
                self._letting_go = weakref.finalize(self, kept[1], *kept[2])
                raise
            self._end()

    def _end(self) -> None:
        """It has been let go, or its import closed."""
        self._letting_go.detach()
        self._block, self.pointer, self.nbytes = 0, 0, 0

    def release(self) -> int:
        """Raises FailedPrecondition: commpool.free takes blocks of this process's own pools alone."""
        raise FailedPrecondition(f"{self!r} is another process's: free() lets it go")

    def record_stream(self, stream: Stream) -> None:
        """Notes that another stream reads the block. Call it after the work is submitted, and before the free.

        Raises:
          FailedPrecondition: that stream captures, or the block's own, and the other one does not.
        """
        _driver.make_wait(self._place, place_on(stream, self.device))

    def _used_by(self, stream: int) -> None:
        """The ends of reads name their streams, while these live. A consumer's may be gone as the block goes."""

    def __repr__(self) -> str:
        return super().__repr__().replace("Buffer", "SharedBlock")


def _let_go(handle: int, pointer: int, stream: Stream) -> bool:
    """Whether a block has gone: a capture keeps it."""
    return library.commpool_import_release(handle, pointer, stream_handle(stream)) in _GONE


def _close(handle: int) -> bool:
    """Whether an import is closed: a capture keeps it, and a device that is busy for longer than the deadline."""
    return library.commpool_import_close(handle) in _GONE


_Kind = TypeVar("_Kind", bound=SharedBlock)


class SharedStatistics(NamedTuple):
    """What this process holds of another one's pool."""

    blocks: int
    bytes: int


class SharedPool(Owner):
    """The memory of another process's pool, its segments to come included; made by `Pool.import_`.

        shared = commpool.Pool.import_(ticket)
        block = shared.block(ticket_of_block)

    What is mapped stays until `close()`, or the end of the last name, whatever becomes of the owner.

    Raises:
      NotFound: by every method, once it is closed.
    """

    __slots__ = ("handle", "device", "_closing", "_held", "__weakref__")

    def __init__(self, ticket: str, device: Optional[Device], addresses: AddressesWord, deadline_ms: int) -> None:
        """Imports the pool of a ticket: see Pool.import_."""
        given = _abi.CImportOptions()
        given.device = -1 if device is None else known_device(device)  # COMMPOOL_CURRENT_DEVICE
        given.addresses = options.number_of("addresses", addresses)
        given.deadline_ms = index_of(deadline_ms, "deadline_ms", 48)
        self.handle = int(library.import_open(options.text_of("ticket", ticket), ctypes.byref(given)))
        self._closing = weakref.finalize(self, do_or_leave, functools.partial(_close, self.handle))
        # Which reads and writes the pool here. The driver has none for memory of the host; the ticket has the pool's.
        self.device = given.device if given.device >= 0 else _driver.device_at(ticket.split(",")[_DEVICE])
        self._held: weakref.WeakSet[SharedBlock] = weakref.WeakSet()

    def block(self, ticket: str, stream: Stream = None, *, mutable: bool = True) -> SharedBlock:
        """A block of the pool. The first of a segment maps it; further ones cost no driver call. That of the import's
        ticket is there already if the owner was awake: it costs no question.

        Args:
          ticket: of the block.
          stream: its last work is done before the memory serves again; it lives until the block has gone. `read` takes
            others too. A default stream is the one of the import's device.
          mutable: False: the program knows that nobody writes to it any more, so `read` asks nobody, may lie in a
            capture, and of `stream` costs nothing. A sleep of the owner's pool waits for no such read.

        Raises:
          InvalidArgument: it is no ticket of a block, or of another pool.
          NotFound: the block was freed before the import held it.
          OutOfMemory: one of the two processes has no descriptor left.
          Exhausted: the import has 8192 blocks.
          RemoteFailure: the owner has ended before the block's segment was mapped.
        """
        return self._block(SharedBlock, ticket, stream, mutable)

    def _block(self, kind: type[_Kind], ticket: str, stream: Stream, mutable: bool) -> _Kind:
        place_on(stream, self.device)  # refused before anything is held
        try_left()
        pointer, nbytes = library.import_block(self.handle, options.text_of("ticket", ticket))
        made = kind(self, int(pointer), int(nbytes), stream, mutable)
        self._held.add(made)
        return made

    def stats(self) -> SharedStatistics:
        """What this process holds of it now."""
        if not self._closing.alive:
            raise NotFound("the import is closed")
        held = [block.nbytes for block in self._held if block.nbytes]
        return SharedStatistics(len(held), sum(held))

    def address(self, theirs: int) -> int:
        """Where the memory is here that the owner has at an address of its own; holds nothing.

        Raises:
          NotFound: the pool has nothing there.
        """
        return int(library.import_address(self.handle, index_of(theirs, "address")))

    def close(self) -> None:
        """Lets all blocks go, after a wait for the device, and unmaps the memory.

        Raises:
          DeadlineExceeded: the device is busy for longer than deadline_ms: nothing was done.
        """
        if self._closing.alive:
            library.import_close(self.handle)
            self._closing.detach()
            for block in list(self._held):
                block._end()

    def __enter__(self) -> SharedPool:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._closing.alive:
            return "<commpool.SharedPool: closed>"
        held = self.stats()
        return f"<commpool.SharedPool, device {self.device}: {held.blocks} blocks held, {format_size(held.bytes)}>"
