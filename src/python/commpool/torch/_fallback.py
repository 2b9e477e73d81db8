"""Warns once, and counts, when commpool has to use a second choice."""

from __future__ import annotations

import collections
import warnings

_counts: collections.Counter[str] = collections.Counter()


def fell_back(way: str, why: str) -> None:
    """Counts one use of a second choice, and warns at the first."""
    _counts[way] += 1
    if _counts[way] == 1:
        warnings.warn(f"commpool.torch: {why}", RuntimeWarning, stacklevel=4)


def fallbacks() -> dict[str, int]:
    """How often each second choice was used, by its name; empty if none was."""
    return dict(_counts)
