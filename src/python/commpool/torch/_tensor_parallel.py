"""Tensor parallelism: makes the input of a layer's all-reduce in a window, eagerly and in CUDA graphs."""

from __future__ import annotations

import threading
from typing import Any, Optional

import commpool
from commpool import errors, options

from . import _group
from ._advise import advise
from ._scope import use_pool


RANGES = "ranges of sizes"


def size_words(sizes: Optional[options.SizeRange]) -> str:
    """A range of sizes, as text that ranks compare."""
    if sizes is None:
        return "all sizes"
    least, most = options.size_range(sizes)
    return f"{least} to {most} bytes"


class tp:
    """Routes the outputs of row-parallel layers into windows of a pool. Enter it as a context manager for each.

        windows = commpool.tp(pool)                # once, on all ranks
        ...
        with windows:                              # in forward, around what makes the tensor
            out = torch.nn.functional.linear(x, self.weight)
        dist.all_reduce(out)                       # in a symmetric kernel, if windows gain at this size

    It may be entered again inside itself, by several threads, and during a capture: then the graph owns what is made.
    Tensors outside the range of sizes stay torch's. Graphs need a pool with deferred frees, the default. For a model
    that decodes eagerly, with its ranks in lockstep, use frees="ordered": freed memory can serve at once, as with
    torch's own allocator, while deferred frees need a pool.reclaim() every few steps.
    """

    def __init__(self, pool: commpool.Pool, *, group: Any = None, sizes: Optional[options.SizeRange] = None) -> None:
        """COLLECTIVE over the group: the ranks compare the range of sizes.

        Args:
          pool: symmetric, registered with the group, with enough reserved.
          group: the group of the following all-reduces; None is the default group.
          sizes: (lower, upper) limit of the sizes that windows serve; None: what `advise` found for this group.

        Raises:
          InvalidArgument: the pool has no windows.
          FailedPrecondition: the group has no communicator.
          Disagreement: the ranks gave different ranges; the message names both.
        """
        with errors.refusing(lambda why: _group.refuse(group, RANGES, why)):
            _group.check_windows(pool, "tp")
            group = _group.checked_group(group)
            _group.communicator_of(group, pool.device)
            given = None if sizes is None else options.size_range(sizes)
        _group.same_everywhere(group, RANGES, ["as advised" if given is None else size_words(given)])
        self.pool = pool
        self.sizes = advise(group).sizes if given is None else given
        self._scope = use_pool(pool, sizes=self.sizes) if self.sizes is not None else None
        self._open = threading.local()  # the scopes that a thread has entered, the innermost is the last

    def __enter__(self) -> commpool.Pool:
        if self._scope is not None:
            scope = self._scope.again()
            scope.__enter__()
            self._open.__dict__.setdefault("scopes", []).append(scope)
        return self.pool

    def __exit__(self, *error: Any) -> None:
        if self._scope is not None:
            self._open.scopes.pop().__exit__(*error)
