"""Parts of a program's pools together, by the tag that they were made with: weights, caches."""

from __future__ import annotations

from . import options
from ._library import check, library


def sleep(*, tag: str, keep: options.KeepWord = "discard", graphs: options.GraphsWord = "refused") -> None:
    """`Pool.sleep` of all pools of the process that have the tag, in the order in which they were made.

    Pools that are asleep already are passed by. Where one fails the others sleep, and the first failure is raised.
    """
    check(library.commpool_sleep(tag.encode(), options.number_of("keep", keep), options.number_of("graphs", graphs)))


def wake(*, tag: str) -> None:
    """`Pool.wake` of all pools of the process that have the tag and are asleep."""
    check(library.commpool_wake(tag.encode()))
