"""What NCCL can do with a pointer: its window, and NVLink multicast."""

from __future__ import annotations

from typing import NamedTuple

from ._library import library, text_of
from .handles import Communicator, Pointer, communicator_handle, pointer_of
from .sizes import Size, parse_size


class Window(NamedTuple):
    """The ncclWindow_t that holds a pointer, and the pointer's offset in it, which is the same on every rank."""

    handle: int
    offset: int


class NvlsEligibility(NamedTuple):
    """Whether NCCL can use NVLink multicast; if not, the reason."""

    eligible: bool
    reason: str

    def __bool__(self) -> bool:
        return self.eligible


def window_of(pointer: Pointer, communicator: Communicator) -> Window:
    """Finds the window that holds a pointer on a communicator, without a driver call.

    Raises:
      NotFound: there is none.
    """
    window, offset = library.window_of(pointer_of(pointer), communicator_handle(communicator))
    return Window(window or 0, offset)


def nvls_eligible(pointer: Pointer, size: Size, communicator: Communicator) -> NvlsEligibility:
    """Whether NCCL can use NVLink multicast for `size` at a pointer. A yes is no proof, because NCCL chooses by
    size."""
    eligible, reason = library.nvls_eligible(pointer_of(pointer), parse_size(size), communicator_handle(communicator))
    return NvlsEligibility(eligible != 0, text_of(reason))
