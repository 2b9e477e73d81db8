"""Lets some of a program's pools sleep together. The tag of a pool, given when it is made, says which: weights,
caches."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterable, Iterator, Optional, Union

from . import options
from ._library import library
from .handles import Pointer

_told: list[Callable[[], Any]] = []


def tell_when_awake(act: Callable[[], Any]) -> None:
    """Calls `act` after every call that wakes pools. A framework then does what it could not do while they slept."""
    if act not in _told:
        _told.append(act)


@contextlib.contextmanager
def waking() -> Iterator[None]:
    """Wraps a call that wakes pools. If it fails, some of its pools may be awake."""
    try:
        yield
    finally:
        for act in _told:
            act()


def sleep(*, tag: str, keep: options.KeepWord = "discard", graphs: options.GraphsWord = "refused",
          directory: Union[None, str, os.PathLike[str]] = None, only: Optional[Iterable[Pointer]] = None,
          retain: bool = False, constant: Iterable[Pointer] = ()) -> None:
    """Calls `Pool.sleep` for all pools of the process with the tag, in the order in which they were made.

    It skips pools that are asleep. If one fails, the others still sleep, and the first failure is raised.
    """
    name = options.text_of("tag", tag)
    options.sleep_by(lambda given: library.sleep_keeping(name, given), keep, graphs, directory, only, retain, constant)


def wake(*, tag: str) -> None:
    """Calls `Pool.wake` for all pools of the process that have the tag and are asleep."""
    with waking():
        library.wake(options.text_of("tag", tag))
