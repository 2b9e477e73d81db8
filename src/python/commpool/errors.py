"""Exceptions by kind. Each also is Python's own exception of that kind: `except MemoryError` works."""

from __future__ import annotations

import threading
from typing import Optional

from ._abi import StatusCode


class CommpoolError(Exception):
    """A call failed: `message` names the call, the device, the bytes and the likely cause, `code` the kind."""

    code: StatusCode = StatusCode.INTERNAL

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(CommpoolError, ValueError):
    """The caller's values are wrong: nothing was done."""

    code = StatusCode.INVALID_ARGUMENT


class OutOfMemory(CommpoolError, MemoryError):
    """The device, the pool's limit or the system has no more."""

    code = StatusCode.OUT_OF_MEMORY


class Exhausted(OutOfMemory):
    """A symmetric pool is full: reserve or reclaim."""

    code = StatusCode.EXHAUSTED


class NotSupported(CommpoolError, NotImplementedError):
    """This driver, NCCL or device cannot do it."""

    code = StatusCode.NOT_SUPPORTED


class FailedPrecondition(CommpoolError, RuntimeError):
    """Not in this state, or not on this thread."""

    code = StatusCode.FAILED_PRECONDITION


class NotFound(CommpoolError, LookupError):
    """No such pool, pointer, registration or library."""

    code = StatusCode.NOT_FOUND


class DeadlineExceeded(CommpoolError, TimeoutError):
    """A rank or the device did not answer in time."""

    code = StatusCode.DEADLINE_EXCEEDED


class Disagreement(CommpoolError, RuntimeError):
    """Ranks asked for different things."""

    code = StatusCode.DISAGREEMENT


class RemoteFailure(CommpoolError, RuntimeError):
    """Another rank failed: the message names it."""

    code = StatusCode.REMOTE_FAILURE


class DriverError(CommpoolError, RuntimeError):
    """A call of the CUDA driver failed."""

    code = StatusCode.DRIVER_ERROR


class CommunicatorError(CommpoolError, RuntimeError):
    """A call of NCCL failed, or a communicator is unusable."""

    code = StatusCode.COMMUNICATOR_ERROR


class InternalError(CommpoolError, RuntimeError):
    """An exception reached the C ABI: please report it."""

    code = StatusCode.INTERNAL


_KINDS: dict[int, type[CommpoolError]] = {
    int(kind.code): kind
    for kind in (InvalidArgument, OutOfMemory, Exhausted, NotSupported, FailedPrecondition, NotFound, DeadlineExceeded,
                 Disagreement, RemoteFailure, DriverError, CommunicatorError, InternalError)
}


class _Raised(threading.local):
    exception: Optional[BaseException] = None


# What a Python function raised while the library ran it on this thread: the cause of the failure that follows.
_raised = _Raised()


def note_raised(exception: BaseException) -> None:
    """A Python function that the library called raised this; it cannot pass through C."""
    _raised.exception = exception


def forget_raised() -> None:
    """The library recovered from what a Python function raised, or a new call begins."""
    _raised.exception = None


def what_was_raised() -> str:
    """ "a Python function raised TypeError: ...", of the failure that is reported now; empty where none did."""
    cause = _raised.exception
    return f"a Python function raised {type(cause).__name__}: {cause}" if cause is not None else ""


def failure(code: int, message: str) -> CommpoolError:
    """The exception of a status, with what a Python function raised on the way as its cause."""
    said, cause = what_was_raised(), _raised.exception
    forget_raised()
    if said:
        message = f"{message} ({said})"
    error = _KINDS.get(code, CommpoolError)(message)
    error.__cause__ = cause
    return error
