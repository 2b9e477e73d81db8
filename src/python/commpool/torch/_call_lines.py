"""Finds the Python line of each call that a symmetric pool compares between its ranks.

It is off unless a program asks for it (`Pool(..., call_lines=True)`, or COMMPOOL_TORCH_CALL_LINES=1 in the
environment), because a routed allocation of such a pool then takes some microseconds more. When ranks diverge, the
error names the first different call by its number and bytes. The lines that are kept here say where this rank made that
call.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import os
import re
import sys
import threading
from types import FrameType
from typing import NamedTuple, Optional

from commpool import _abi, errors
from commpool.sizes import format_size

from . import _router

_VARIABLE = "COMMPOOL_TORCH_CALL_LINES"
_KEPT = 512
_USERS = "the user's allocate function"  # the library's name for the allocate function of a UserBacking
_CALL = re.compile(r"allocate ([\d,]+) bytes?[^(]*\(call (\d+)\)")


class Call(NamedTuple):
    """One call that the ranks compare."""

    number: int
    nbytes: int  # 0 of collective calls
    line: str


class _Calls:
    """The latest calls of one pool, in order."""

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.count = 0
        self.kept: collections.deque[Call] = collections.deque(maxlen=_KEPT)

    def add(self, nbytes: int, line: str) -> None:
        self.count += 1  # the library counts from 1
        self.kept.append(Call(self.count, nbytes, line))


_watched: dict[int, _Calls] = {}


def wanted(asked: bool) -> bool:
    """Whether the lines must be kept.

    Raises:
      InvalidArgument: the variable is neither 0 nor 1.
    """
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise errors.InvalidArgument(f"{_VARIABLE}={value} is none of 0, 1")
    return asked or value == "1"


def watch(pool: int) -> None:
    """Keeps the lines of a pool from now on. The pool must be new."""
    _watched[pool] = _Calls()
    router = _router.loaded()
    if router is not None:
        attach(router)


def attach(router: _router.Router) -> None:
    """Lets the router ask this module where a call was made. The router reports calls once a pool is watched."""
    router.watch_calls(_on_call if _watched else _abi.TorchOnCall(), _explain)


def forget(pool: int) -> None:
    """Call it when the pool has ended."""
    _watched.pop(pool, None)


def called(pool: int, nbytes: int = 0) -> None:
    """Notes a call of the pool: an allocation, or a collective call."""
    calls = _watched.get(pool)
    if calls is not None:
        calls.add(nbytes, _line(sys._getframe().f_back, calls.owner))


def _of_the_program(frame: Optional[FrameType]) -> Optional[FrameType]:
    while frame is not None and re.match(r"(commpool|torch)(\.|$)", frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def _line(frame: Optional[FrameType], owner: int) -> str:
    found, where = _of_the_program(frame), ""
    if found is None:  # autograd's thread runs no Python; the thread that waits for it does
        found, where = _of_the_program(sys._current_frames().get(owner)), "in what was called at "
    return f"{where}{found.f_code.co_filename}:{found.f_lineno}" if found is not None else "on a thread without Python"


def explanation(pool: int, sentence: str) -> str:
    """Where this rank made the call that a sentence names; empty if unknown."""
    calls = _watched.get(pool)
    named = [(int(nbytes.replace(",", "")), int(number)) for nbytes, number in _CALL.findall(sentence)]
    if calls is None:
        return f"{_VARIABLE}=1 in the environment names the Python line" if named else ""
    # The sentence names one call of each of two ranks. This rank's call is the one nearest to that place.
    made = [(abs(call.number - number), call) for nbytes, number in named for call in calls.kept
            if call.nbytes == nbytes]
    if not made:
        return ""
    _, nearest = min(made, key=lambda found: found[0])
    return f"This rank allocated {nearest.nbytes:,} bytes at {nearest.line}"


def asked_at(pool: int, sizes: list[int]) -> str:
    """Where this rank asked for blocks of these sizes, as far as it is known."""
    calls = _watched[pool].kept if pool in _watched else ()
    lines = [(nbytes, dict.fromkeys(call.line for call in calls if call.nbytes == nbytes)) for nbytes in sizes]
    said = "; ".join(f"{format_size(nbytes)} at {' or '.join(found)}" for nbytes, found in lines if found)
    return f". Asked for: {said}" if said else ""


def _write_explanation(pool: int, sentence: bytes, text: int, room: int) -> None:
    words = sentence.decode("utf-8", "replace")
    if _USERS in words:
        said, cause = errors.take_raised()  # torch raises its own error, so nobody else asks for the cause
        if isinstance(cause, KeyboardInterrupt):
            _thread.interrupt_main()  # again, because torch raises its own error instead of this one
    else:
        said = explanation(pool, words)
    written = said.encode()[:room - 1] + b"\0"
    ctypes.memmove(text, written, len(written))


_on_call, _explain = _abi.TorchOnCall(called), _abi.TorchExplain(_write_explanation)
