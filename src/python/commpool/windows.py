"""What NCCL can do with a pointer: its window, and NVLink multicast."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from ._library import check, library
from .handles import Communicator, Pointer, communicator_handle, pointer_of
from .sizes import Size, parse_size


class Window(NamedTuple):
    """The ncclWindow_t that holds a pointer, and the pointer's offset there: the same on every rank."""

    handle: int
    offset: int


class NvlsEligibility(NamedTuple):
    """Whether NCCL can use NVLink multicast, and where it cannot, why."""

    eligible: bool
    reason: str

    def __bool__(self) -> bool:
        return self.eligible


def window_of(pointer: Pointer, communicator: Communicator) -> Window:
    """The window that holds a pointer on a communicator, without a driver call.

    Raises:
      NotFound: there is none.
    """
    window, offset = ctypes.c_void_p(), ctypes.c_uint64()
    check(library.commpool_window_of(pointer_of(pointer), communicator_handle(communicator), ctypes.byref(window),
                                     ctypes.byref(offset)))
    return Window(window.value or 0, offset.value)


def nvls_eligible(pointer: Pointer, size: Size, communicator: Communicator) -> NvlsEligibility:
    """Whether NCCL can use NVLink multicast for `size` at a pointer. A yes is no proof: NCCL chooses by size."""
    eligible, reason = ctypes.c_int(), ctypes.c_char_p()
    check(library.commpool_nvls_eligible(pointer_of(pointer), parse_size(size), communicator_handle(communicator),
                                         ctypes.byref(eligible), ctypes.byref(reason)))
    return NvlsEligibility(eligible.value != 0, (reason.value or b"").decode("utf-8", "replace"))
