"""What lies around the submission of work that another process must know of: reads and updates of shared blocks."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Generic, TypeVar

from . import _driver
from .errors import CommpoolError, DriverError, FailedPrecondition
from .handles import Stream, stream_handle

_Value = TypeVar("_Value")

# What captures refused: each tries once more, and says whether it is done.
_left: list[Callable[[], bool]] = []


def do_or_leave(attempt: Callable[[], bool]) -> None:
    """Does it, where no capture refuses it; else as the next read, update or shared block comes, or goes."""
    _left.append(attempt)
    try_left()


def try_left() -> None:
    """Tries each of what captures refused once more."""
    for _ in range(len(_left)):
        with contextlib.suppress(IndexError, CommpoolError):  # another thread took the last one; nobody hears a failure
            attempt = _left.pop(0)
            if not attempt():
                _left.append(attempt)


class Submission(contextlib.AbstractContextManager[_Value], Generic[_Value]):
    """Begins and ends a read or an update."""

    __slots__ = ("_value", "_device", "_stream", "_begin", "_end", "_open")

    def __init__(self, value: _Value, device: int, stream: Stream, begin: Callable[[], Any],
                 end: Callable[[int], Any]) -> None:
        """Of work on the stream, which lives as long as this object; `end` gets its handle. `value`: what `with` names.
        """
        self._value, self._begin, self._end, self._open = value, begin, end, False
        self._device, self._stream = device, stream

    def _captures(self) -> bool:
        return _driver.captures(self._device, stream_handle(self._stream))

    def _ends(self) -> bool:
        with contextlib.suppress(DriverError):  # then the stream is gone, and captures no more
            if self._captures():
                return False
        self._end_once()
        return True

    def _end_once(self) -> None:
        """Where the stream fails, as one that was destroyed, it ends behind all work of the device."""
        try:
            self._end(stream_handle(self._stream))
        except FailedPrecondition:
            raise
        except CommpoolError:
            _driver.synchronize(self._device)
            self._end(0)
            raise

    def __enter__(self) -> _Value:
        # An end in a capture is refused, and other processes would wait for it.
        if self._captures():
            raise FailedPrecondition("the stream captures: reads and updates lie around the launch of the graph, not "
                                     "inside of it; nothing has begun")
        try_left()  # not before: closing an import waits for the device
        self._begin()
        self._open = True
        return self._value

    def __exit__(self, *error: Any) -> None:
        self._open = False
        try:
            self._end_once()
        except FailedPrecondition as failure:
            if not self._captures():
                raise
            _left.append(self._ends)
            raise FailedPrecondition(f"{failure.message}; it is open until the capture has ended and the next read or "
                                     "update begins")

    def __del__(self) -> None:
        if getattr(self, "_open", False):  # it was entered, and never left
            with contextlib.suppress(CommpoolError):
                self.__exit__()
