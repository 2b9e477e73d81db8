"""Chooses DDP's gradient buckets, and which of them are in windows, for the shortest time with this model."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import torch

from commpool.sizes import format_size

from ._advice import Advice, SizeRange, lies_in, text_of

_MIB = 1 << 20
_LARGEST = 25 * _MIB  # as in torch: larger buckets would wait for more of backward
_EVERYTHING: SizeRange = (0, None)


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
