"""What lets other processes import a pool: tickets, and updates of blocks that they read."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any, Callable, Optional

from . import options
from ._abi import AddressesWord as AddressesWord, ImportsWord as ImportsWord
from ._library import library
from ._submission import Submission
from .blocks import block_of
from .errors import InvalidArgument
from .handles import Device, Pointer, Stream, pointer_of, stream_handle
from .imports import SharedPool

_TICKET_BYTES = 512  # COMMPOOL_TICKET_BYTES


def _ticket(call: Callable[..., Any], *arguments: Any) -> str:
    text = ctypes.create_string_buffer(_TICKET_BYTES)
    call(*arguments, text, len(text))
    return text.value.decode()


class Sharer:
    """The part of a Pool that other processes are concerned with."""

    __slots__ = ()

    handle: int
    device: int

    def share(self, block: Optional[Pointer] = None, *, mutable: bool = True,
              imports: Optional[ImportsWord] = None) -> str:
        """A ticket: the text by which another process of this user imports the pool (`Pool.import_`), and its blocks.

        Who has it reads and writes all of the pool, so it is a secret. A block that was shared serves again once every
        process has let go of it.

        Args:
          block: makes the ticket that of a block: `SharedPool.block` takes it.
          mutable: False: nobody writes to that block any more. Else the program has waited for what it wrote, or goes
            on in `update`.
          imports: what a sleep of the pool does while processes import it. "refuse_sleep", the default: it is refused.
            "sleep_too": they let the memory go first, and map it again, where it was, as the pool wakes.

        Raises:
          NotSupported: the pool is symmetric or expandable, or has memory without a handle; the message has the reason.
          NotFound: no live block is there.
          InvalidArgument: `block` is another pool's, or a part of a block.
        """
        if block is None or imports is not None:
            of_pool = _ticket(library.pool_share, self.handle, options.number_of("imports", imports or "refuse_sleep"))
            if block is None:
                return of_pool
        pointer, found = pointer_of(block), block_of(block)
        if found is not None and found.pool != self.handle:
            raise InvalidArgument(f"share: {block!r} lies in another pool")
        if found is not None and found.pointer != pointer:
            raise InvalidArgument(f"share: {block!r} is a part of a block, and a ticket is of a whole one")
        return _ticket(library.block_share, pointer, options.number_of("writes", "go_on" if mutable else "ended"))

    def update(self, block: Pointer, stream: Stream = None) -> contextlib.AbstractContextManager[None]:
        """Around the submission of work on a stream that writes to a shared block. It begins once no process reads the
        block, on the device either; others read again once that work is done, also where an exception leaves.

        Raises:
          DeadlineExceeded: processes still read after deadline_ms; the message names them.
          FailedPrecondition: another update of the block is open, the pool sleeps, or it is not mutable; or the stream
            captures. One that begins to capture within the update keeps it open until the capture has ended, and this
            process begins another read or update.
          NotFound: the block was not shared.
        """
        written = pointer_of(block)
        return Submission(None, self.device, stream, functools.partial(library.update_begin, written),
                          functools.partial(library.update_end, written))

    @classmethod
    def import_(cls, ticket: str, *, device: Optional[Device] = None, addresses: AddressesWord = "any",
                deadline_ms: int = 60000) -> SharedPool:
        """Imports another process's pool by a ticket, its own or one of its blocks'. That block is mapped and held at
        once: `SharedPool.block` hands it out.

        Args:
          device: which reads and writes it here; None is the pool's own.
          addresses: "any": those of the owner where they are free here, else others. "same": those of the owner.
          deadline_ms: of every wait for the owner.

        Raises:
          InvalidArgument: it is no ticket, or was cut or changed.
          NotSupported: a newer commpool made it.
          FailedPrecondition: the pool is this process's own; or the addresses are taken, with "same".
          RemoteFailure: the owner has ended, or is another user's.
          NotFound: the pool has ended, the ticket is forged, or this process does not see the device.
          DeadlineExceeded: the owner does not answer.
        """
        return SharedPool(ticket, device, addresses, deadline_ms)
