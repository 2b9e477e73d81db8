"""Parts of a program's pools together, by the tag that they were made with: weights, caches."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterable, Iterator, Optional, Union

from . import options
from ._library import library
from .handles import Pointer

_told: list[Callable[[], Any]] = []


def tell_when_awake(act: Callable[[], Any]) -> None:
    """Calls it after every call that wakes pools: a framework makes up for what it could not do while they slept."""
    if act not in _told:
        _told.append(act)


@contextlib.contextmanager
def waking() -> Iterator[None]:
    """Around a call that wakes pools. Where it fails, others of its pools may be awake."""
    try:
        yield
    finally:
        for act in _told:
            act()


def sleep(*, tag: str, keep: options.KeepWord = "discard", graphs: options.GraphsWord = "refused",
          directory: Union[None, str, os.PathLike[str]] = None, only: Optional[Iterable[Pointer]] = None,
          retain: bool = False, constant: Iterable[Pointer] = ()) -> None:
    """`Pool.sleep` of all pools of the process that have the tag, in the order in which they were made.

    Pools that are asleep already are passed by. Where one fails the others sleep, and the first failure is raised.
    """
    name = options.text_of("tag", tag)
    options.sleep_by(lambda given: library.sleep_keeping(name, given), keep, graphs, directory, only, retain, constant)


def wake(*, tag: str) -> None:
    """`Pool.wake` of all pools of the process that have the tag and are asleep."""
    with waking():
        library.wake(options.text_of("tag", tag))
