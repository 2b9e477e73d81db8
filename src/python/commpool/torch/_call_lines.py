"""Which Python line made the calls that a symmetric pool compares between its ranks.

Off unless asked for (`Pool(..., call_lines=True)`, or COMMPOOL_TORCH_CALL_LINES=1 in the environment): a routed
allocation of such a pool then costs some microseconds more. A divergence names the first call that differs by its
number and bytes; what is kept here says where this rank made it.
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

from . import _router

_VARIABLE = "COMMPOOL_TORCH_CALL_LINES"
_KEPT = 512
_USERS = "the user's allocate function"  # as the library calls that of a UserBacking
_CALL = re.compile(r"allocate ([\d,]+) bytes?[^(]*\(call (\d+)\)")


class Call(NamedTuple):
    """One call that the ranks compare."""

    number: int
    nbytes: int  # 0 of collective calls
    line: str


class _Calls:
    """The last calls of one pool, in their order."""

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.count = 0
        self.kept: collections.deque[Call] = collections.deque(maxlen=_KEPT)

    def add(self, nbytes: int, line: str) -> None:
        self.count += 1  # the library counts from 1
        self.kept.append(Call(self.count, nbytes, line))


_watched: dict[int, _Calls] = {}


def wanted(asked: bool) -> bool:
    """Whether lines are to be kept.

    Raises:
      InvalidArgument: the variable is neither 0 nor 1.
    """
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise errors.InvalidArgument(f"{_VARIABLE}={value} is none of 0, 1")
    return asked or value == "1"


def watch(pool: int) -> None:
    """Keeps the lines of a pool from now on; it has to be new."""
    _watched[pool] = _Calls()
    router = _router.loaded()
    if router is not None:
        attach(router)


def attach(router: _router.Router) -> None:
    """The router asks this module where a call was made, and tells of calls once a pool is watched."""
    router.watch_calls(_on_call if _watched else _abi.TorchOnCall(), _explain)


def forget(pool: int) -> None:
    """The pool has ended."""
    _watched.pop(pool, None)


def called(pool: int, nbytes: int = 0) -> None:
    """A call of the pool's was made: an allocation, or a collective one."""
    calls = _watched.get(pool)
    if calls is not None:
        calls.add(nbytes, _line(sys._getframe().f_back, calls.owner))


def _of_the_program(frame: Optional[FrameType]) -> Optional[FrameType]:
    while frame is not None and re.match(r"(commpool|torch)(\.|$)", frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def _line(frame: Optional[FrameType], owner: int) -> str:
    found, where = _of_the_program(frame), ""
    if found is None:  # autograd's thread runs no Python: what waits for it does
        found, where = _of_the_program(sys._current_frames().get(owner)), "in what was called at "
    return f"{where}{found.f_code.co_filename}:{found.f_lineno}" if found is not None else "on a thread without Python"


def explanation(pool: int, sentence: str) -> str:
    """Where this rank made the call that a sentence names; empty where that is not known."""
    calls = _watched.get(pool)
    named = [(int(nbytes.replace(",", "")), int(number)) for nbytes, number in _CALL.findall(sentence)]
    if calls is None:
        return f"{_VARIABLE}=1 in the environment names the Python line" if named else ""
    # The sentence has a call of each of two ranks: this rank's is the one that it made at that place, or nearest to it.
    made = [(abs(call.number - number), call) for nbytes, number in named for call in calls.kept
            if call.nbytes == nbytes]
    if not made:
        return ""
    _, nearest = min(made, key=lambda found: found[0])
    return f"This rank allocated {nearest.nbytes:,} bytes at {nearest.line}"


def _write_explanation(pool: int, sentence: bytes, text: int, room: int) -> None:
    words = sentence.decode("utf-8", "replace")
    if _USERS in words:
        said = errors.what_was_raised()
        if errors.was_interrupted():
            _thread.interrupt_main()  # once more, since torch raises its own error of this one
        errors.forget_raised()  # torch raises what it is told; nobody else asks for the cause
    else:
        said = explanation(pool, words)
    written = said.encode()[:room - 1] + b"\0"
    ctypes.memmove(text, written, len(written))


_on_call, _explain = _abi.TorchOnCall(called), _abi.TorchExplain(_write_explanation)
