"""Exceptions, one for each kind of failure. Each is also Python's own exception of its kind: use `except
MemoryError`."""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

from ._abi import StatusCode as StatusCode


class CommpoolError(Exception):
    """A call failed. `message` names the call, the device, the bytes and the likely cause; `code` is the kind."""

    code: StatusCode = StatusCode.INTERNAL

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __init_subclass__(cls, code: Optional[StatusCode] = None) -> None:
        """Makes the class that of a status."""
        if code is not None:
            cls.code, KINDS[code] = code, cls


# The class of each status.
KINDS: dict[int, type[CommpoolError]] = {}
# The objects of pools, by handle: sentences of the library know a pool that has ended by its handle alone.
living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def living_pools() -> list[Any]:
    """The pools that this process has made, in that order. Other threads may make and end some meanwhile."""
    found = [reference() for reference in living.valuerefs()]
    return sorted((pool for pool in found if pool is not None), key=lambda pool: pool.handle)


class InvalidArgument(CommpoolError, ValueError, code=StatusCode.INVALID_ARGUMENT):
    """The caller's values are wrong: nothing was done."""


class OutOfMemory(CommpoolError, MemoryError, code=StatusCode.OUT_OF_MEMORY):
    """The device, the pool's limit or the system has no more."""


class Exhausted(OutOfMemory, code=StatusCode.EXHAUSTED):
    """A symmetric pool is full: reserve or reclaim."""


class NotSupported(CommpoolError, NotImplementedError, code=StatusCode.NOT_SUPPORTED):
    """This driver, NCCL or device cannot do it."""


class FailedPrecondition(CommpoolError, RuntimeError, code=StatusCode.FAILED_PRECONDITION):
    """Not possible in this state, or not on this thread."""


class NotFound(CommpoolError, LookupError, code=StatusCode.NOT_FOUND):
    """No such pool, pointer, registration or library."""


class DeadlineExceeded(CommpoolError, TimeoutError, code=StatusCode.DEADLINE_EXCEEDED):
    """A rank or the device did not answer in time."""


class Disagreement(CommpoolError, RuntimeError, code=StatusCode.DISAGREEMENT):
    """Ranks asked for different things."""


class RemoteFailure(CommpoolError, RuntimeError, code=StatusCode.REMOTE_FAILURE):
    """Another rank failed: the message names it."""


class DriverError(CommpoolError, RuntimeError, code=StatusCode.DRIVER_ERROR):
    """A call of the CUDA driver failed."""


class CommunicatorError(CommpoolError, RuntimeError, code=StatusCode.COMMUNICATOR_ERROR):
    """A call of NCCL failed, or a communicator is unusable."""


class InternalError(CommpoolError, RuntimeError, code=StatusCode.INTERNAL):
    """An exception reached the C ABI: please report it."""


class _Raised(threading.local):
    exception: Optional[BaseException] = None


# What a Python function raised while the library ran it on this thread, for an exception cannot pass through C. It is
# the cause of the failure that follows; None where the library recovered, or a new call begins.
raised = _Raised()


def take_raised() -> tuple[str, Optional[BaseException]]:
    """ "a Python function raised TypeError: ...", or an empty text, and that exception, which is forgotten."""
    cause, raised.exception = raised.exception, None
    return f"a Python function raised {type(cause).__name__}: {cause}" if cause is not None else "", cause


_NO_POOL = re.compile(r"^pool (\d+) does not exist: it was destroyed, or never made")
_OPTION = re.compile(r"\b([a-z_]+(?= =)|mode|grants|keep)(?: =)? ([A-Z][A-Z_]+)\b")
_SIZE = re.compile(r"\b(limit|segment|alignment|granularity)_bytes\b")


def in_python(message: str) -> str:
    """The library's sentence in Python's words: `graphs = DISCARDED` is graphs="discarded", `limit_bytes` limit."""

    def named(found: re.Match[str]) -> str:
        pool = living.get(int(found[1]))
        return found[0] if pool is None else f"pool {pool.name!r} was destroyed"

    message = _SIZE.sub(r"\1", message.replace("replays ONE_AT_A_TIME", "concurrent_replays=False"))
    return _OPTION.sub(lambda found: f'{found[1]}="{found[2].lower()}"', _NO_POOL.sub(named, message))


def failure(code: int, message: str) -> BaseException:
    """The exception of a status. Its cause is what a Python function raised on the way. An exception that ends the
    program, such as Ctrl-C's, is returned itself.
    """
    said, cause = take_raised()
    if cause is not None and not isinstance(cause, Exception):
        return cause
    message = in_python(message)
    error = KINDS.get(code, CommpoolError)(f"{message} ({said})" if said else message)
    error.__cause__ = cause
    return error


@contextlib.contextmanager
def refusing(tell: Callable[[Exception], Any]) -> Iterator[None]:
    """Around what checks a rank's own words for a collective call. Where that fails `tell` makes the call in a way that
    is refused on all ranks: those who wait in it hear of it at once.
    """
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception):  # here the program hears its own error
            tell(error)
        raise
