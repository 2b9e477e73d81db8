"""Turns times of all-reduces, plain and in windows, into ranges of sizes and a model's gradient buckets: their size,
and which of them are in windows, for the shortest time with this model."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple, Optional, Sequence

import torch

from commpool.sizes import format_size

_WORTH_IT = 0.98  # a smaller gain is noise
_MIB = 1 << 20
_LARGEST = 25 * _MIB  # as in torch: larger buckets would wait for more of backward

SizeRange = tuple[int, Optional[int]]
_EVERYTHING: SizeRange = (0, None)


class Row(NamedTuple):
    """One size of all-reduce: microseconds in torch's memory and in windows, on the slowest rank."""

    nbytes: int
    plain_us: float
    window_us: float

    @property
    def gains(self) -> bool:
        """Whether windows gain more than noise."""
        return self.window_us <= _WORTH_IT * self.plain_us


@dataclasses.dataclass(frozen=True)
class Advice:
    """The measured times and what follows from them. They are the same on every rank."""

    ranks: int
    rows: tuple[Row, ...]
    blocks: int = 0

    @property
    def sizes(self) -> Optional[tuple[int, int]]:
        """The smallest and largest tensors, in bytes, that windows serve faster, for `use_pool(sizes=...)`; None: none.

        The range ends before the next larger size that is slower in windows, so it has no gaps.
        """
        runs = self._runs()
        return (runs[0][0].nbytes, runs[0][-1].nbytes) if runs else None

    @property
    def ranges(self) -> list[SizeRange]:
        """All such ranges. Each ends between two measured sizes, where windows begin to lose. None: it has no end."""
        return [(run[0].nbytes, self._end_of(run[-1])) for run in self._runs()]

    def _runs(self) -> list[list[Row]]:
        runs: list[list[Row]] = []
        before = False
        for row in self.rows:
            if row.gains:
                runs[-1].append(row) if before else runs.append([row])
            before = row.gains
        return runs

    def _end_of(self, last: Row) -> Optional[int]:
        place = self.rows.index(last) + 1
        if place == len(self.rows):
            return None
        beyond = self.rows[place]
        left, lost = (row.window_us - _WORTH_IT * row.plain_us for row in (last, beyond))
        return last.nbytes + int((beyond.nbytes - last.nbytes) * left / (left - lost))

    def microseconds(self, buckets: Sequence[int], windows: Optional[SizeRange]) -> float:
        """The time of all-reduces of the buckets, one after another, if those in a range of sizes are in windows."""
        return sum(self._of(nbytes, in_window=lies_in(nbytes, windows)) for nbytes in buckets)

    def _of(self, nbytes: int, in_window: bool) -> float:
        """Linear between two measured sizes. Above the largest it assumes the same bytes per second."""
        points = [(row.nbytes, row.window_us if in_window else row.plain_us) for row in self.rows]
        if nbytes <= points[0][0]:
            return points[0][1]
        for (low, at_low), (high, at_high) in zip(points, points[1:]):
            if nbytes <= high:
                return at_low + (at_high - at_low) * (nbytes - low) / (high - low)
        return points[-1][1] * nbytes / points[-1][0]

    def __str__(self) -> str:
        over = f" whose kernels have at least {self.blocks} blocks" if self.blocks else ""
        lines = [f"all-reduce over {self.ranks} ranks, us: plain, in windows{over}"]
        lines += [f"{format_size(row.nbytes):>10}{row.plain_us:10.1f}{row.window_us:10.1f}" for row in self.rows]
        ranges = " and ".join(text_of(sizes) for sizes in self.ranges)
        return "\n".join([*lines, f"windows gain {ranges}" if ranges else "windows gain at none of these sizes"])


def lies_in(nbytes: int, sizes: Optional[SizeRange]) -> bool:
    """Whether a size is in a range; None is an empty range."""
    return sizes is not None and sizes[0] <= nbytes <= (math.inf if sizes[1] is None else sizes[1])


def text_of(sizes: Optional[SizeRange]) -> str:
    """A range of sizes in words."""
    if sizes is None:
        return "at no size"
    least, most = sizes
    return f"from {format_size(least)}" + (" on" if most is None else f" to {format_size(most)}")


class Buckets(NamedTuple):
    """How `ddp` cuts a model's gradients. It is the same on every rank.

    `nbytes` is a bucket's size. `windows` is the range of sizes in windows. `blocks` is the minimum number of blocks
    for their communicator's kernels (0: the group's own communicator). The microseconds are the time of all buckets'
    all-reduces, as chosen and in torch's memory, if that was measured.
    """

    nbytes: int
    windows: Optional[SizeRange] = _EVERYTHING
    blocks: int = 0
    microseconds: Optional[float] = None
    plain_microseconds: Optional[float] = None

    def __str__(self) -> str:
        where = "all in windows" if self.windows == _EVERYTHING else f"in windows {text_of(self.windows)}"
        over = f", over kernels of at least {self.blocks} blocks" if self.blocks and self.windows else ""
        took = "" if self.microseconds is None else (f"; all of them are reduced in {self.microseconds:.0f} us, in "
                                                     f"torch's memory in {self.plain_microseconds:.0f} us")
        return f"buckets of {format_size(self.nbytes)}, {where}{over}{took}"


class Placed(NamedTuple):
    """The number of buckets in each place, and their bytes."""

    in_windows: int
    window_bytes: int
    in_torch: int
    torch_bytes: int


def placed(buckets: Sequence[int], windows: Optional[SizeRange]) -> Placed:
    """Places buckets of these sizes."""
    inside = [nbytes for nbytes in buckets if lies_in(nbytes, windows)]
    outside = [nbytes for nbytes in buckets if not lies_in(nbytes, windows)]
    return Placed(len(inside), sum(inside), len(outside), sum(outside))


def bucket_sizes(parameters: Sequence[torch.nn.Parameter], cap: int) -> list[int]:
    """The bytes of torch's buckets when it knows the order of backward, which is roughly the reverse of the
    parameters'."""
    from torch._C._distributed_c10d import _compute_bucket_assignment_by_size

    backward: list[torch.Tensor] = [parameter for parameter in reversed(parameters) if parameter.requires_grad]
    if not backward:
        return []
    assigned = _compute_bucket_assignment_by_size(backward, [cap], [False] * len(backward))[0]
    return [sum(backward[place].numel() * backward[place].itemsize for place in bucket) for bucket in assigned]


def in_windows(parameters: Sequence[torch.nn.Parameter], advices: Sequence[Advice], nbytes: int) -> Buckets:
    """Buckets of a size, all in windows, over the communicator that reduces them fastest. Arguments as for `best`."""
    sizes = bucket_sizes(parameters, nbytes)
    soonest = min(advices, key=lambda advice: advice.microseconds(sizes, _EVERYTHING))
    return Buckets(nbytes, _EVERYTHING, soonest.blocks, soonest.microseconds(sizes, _EVERYTHING),
                   soonest.microseconds(sizes, None))


def best(parameters: Sequence[torch.nn.Parameter], advices: Sequence[Advice], cap: Optional[int] = None) -> Buckets:
    """The fastest measured way to reduce all of a model's gradients; torch's own if nothing gains.

    Args:
      parameters: the model's.
      advices: for the group's communicator, and for others beside it.
      cap: the size of a bucket, if the program gave it.
    """
    caps = [cap] if cap is not None else sorted({row.nbytes for advice in advices for row in advice.rows
                                                 if _MIB <= row.nbytes <= _LARGEST} | {_LARGEST}, reverse=True)
    found = []
    for nbytes in caps:
        sizes = bucket_sizes(parameters, nbytes)
        for advice in advices:
            plain = advice.microseconds(sizes, None)
            for windows in (None, *advice.ranges):
                took = advice.microseconds(sizes, windows)
                found.append((took, Buckets(nbytes, windows, advice.blocks if windows else 0, took, plain)))
    return min(found, key=lambda each: each[0])[1]
