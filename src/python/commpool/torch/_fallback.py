"""What did not go the usual way: said once, and counted."""

from __future__ import annotations

import collections
import warnings

_counts: collections.Counter[str] = collections.Counter()


def fell_back(way: str, why: str) -> None:
    """Counts one use of a lesser way, and warns at its first."""
    _counts[way] += 1
    if _counts[way] == 1:
        warnings.warn(f"commpool.torch: {why}", RuntimeWarning, stacklevel=4)


def fallbacks() -> dict[str, int]:
    """How often a lesser way was taken, by its name; empty where everything went the usual way."""
    return dict(_counts)
