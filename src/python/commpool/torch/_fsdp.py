"""FSDP2 with its all-gathers in windows, by copy engines: beside them no SM is taken from the model's kernels."""

from __future__ import annotations

import logging
import math
from typing import Any, Literal, Optional, Sequence, TypeVar

import torch

import commpool
from commpool import errors
from commpool.sizes import format_size, index_of

from . import _beside, _group
from ._fsdp_shards import Before, Shards, comm_of, live_at_once, sharded_modules, shards_of
from ._ring import Ring

_Model = TypeVar("_Model", bound=torch.nn.Module)
_INPUTS_AT_ONCE = 2  # one being reduced, one being filled
_SHARED = "models or settings"

logger = logging.getLogger("commpool.torch")


class WindowedAllGather:
    """What FSDP2 asks for a buffer, and then to gather into it."""

    def __init__(self, ring: Ring, groups: dict[str, Any]) -> None:
        self.ring, self._groups = ring, groups
        self.before: list[Before] = []
        self.watch: Any = None  # of modules that are sharded later

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The next buffer of the ring."""
        return self.ring.take(math.prod(size), dtype)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any,
                 async_op: bool = False) -> Any:
        """Gathers over the communicator that uses copy engines, for what lies in the ring alone."""
        beside = self._groups.get(group.group_name)
        if beside is None or not self.ring.holds(output_tensor):
            raise errors.FailedPrecondition(f"an all-gather over group {group.group_name} was not there when the model "
                                            "was wrapped: wrap it again after changing its meshes")
        return _beside.all_gather(output_tensor, input_tensor, beside, async_op)


class WindowedReduceScatter:
    """The same of reduce-scatters: the input lies in a window, the sharded gradient in torch's memory.

    The gradient lives until it is zeroed, so one ring would not hold those of a step.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._elements = 0

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """FSDP2 asks for the input, then for the output, which is a part of its size."""
        elements = math.prod(size)
        if 0 < elements < self._elements:
            self._elements = 0
            return torch.empty(size, dtype=dtype, device=device)
        self._elements = elements
        return self.ring.take(elements, dtype)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any,
                 async_op: bool = False) -> Any:
        """Over the group's own communicator."""
        return torch.distributed.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group,
                                                       async_op=async_op)


def fsdp(model: _Model, pool: commpool.Pool, *, buffers: Optional[int] = None,
         reduce_scatters: Literal["torch", "pool"] = "torch") -> _Model:
    """Puts the all-gather buffers of a model that fully_shard sharded into windows; returns the model.

        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        model = commpool.fsdp(model, pool)

    COLLECTIVE over the pool's ranks, after the prefetch settings and before the first step. The all-gathers get a
    communicator of their own that uses copy engines. The buffers are taken in turn, and stay in the pool until
    `fsdp_release` or the model's end; logger "commpool.torch" says how large they are, as
    `all_gather_ring(model).total_bytes` does.

    Args:
      model: with FSDP2's modules. Each has the same parameters on all ranks.
      pool: symmetric, over the ranks that shard the model.
      buffers: how many gathered modules there are at once. None: one more than are gathered ahead.
      reduce_scatters: "pool" has their inputs in windows as well, and sums in place of averaging, for which NCCL has
        symmetric kernels; the gradient is then divided by a kernel of torch.

    Raises:
      InvalidArgument: the model is not sharded, or the pool is not symmetric.
      Disagreement: the ranks' models differ; nothing was changed.
    A module that is sharded later makes the model's next forward a FailedPrecondition.
    """
    with errors.refusing(lambda why: _group.refuse(shards_of(model)[0].groups[0], _SHARED, why)):
        _group.check_windows(pool, "fsdp")
        if reduce_scatters not in ("torch", "pool"):
            raise errors.InvalidArgument(f"reduce_scatters {reduce_scatters!r} is none of torch, pool")
        modules = shards_of(model)
        depth = live_at_once(model) if buffers is None else index_of(buffers, "buffers", 31)
        if depth < 1:
            raise errors.InvalidArgument(f"buffers {buffers!r} is less than 1")
    _group.same_everywhere(modules[0].groups[0], _SHARED,
                           [*map(str, modules), f"{depth} buffers", f"{reduce_scatters} memory"])
    groups = {group.group_name: group for module in modules for group in module.groups}
    gathers = max(module.gathered_bytes for module in modules)
    reduces = max(module.reduced_bytes for module in modules) if reduce_scatters == "pool" else 0
    _make_room(pool, [gathers] * depth + [reduces] * (_INPUTS_AT_ONCE if reduces else 0))
    with torch.cuda.device(pool.device):
        comm = WindowedAllGather(Ring(pool, "an FSDP all-gather", depth, gathers),
                                 {name: _beside.with_copy_engines(group, pool) for name, group in groups.items()})
        inputs = Ring(pool, "an FSDP reduce-scatter", _INPUTS_AT_ONCE, reduces) if reduces else None
    reduce = WindowedReduceScatter(inputs) if inputs is not None else None
    _set(modules, comm, reduce)
    comm.watch = model.register_forward_pre_hook(_refuse_later_ones, prepend=True)
    held = comm.ring.total_bytes + (reduce.ring.total_bytes if reduce else 0)
    logger.info("FSDP gathers into %d buffers of %s in %r; beside torch's own peak the pool holds %s", depth,
                format_size(gathers), pool, format_size(held))
    return model


def all_gather_ring(model: torch.nn.Module) -> Ring:
    """The buffers of a model that `fsdp` returned: how many, how large, how often taken.

    Raises:
      FailedPrecondition: `fsdp` has not seen it.
    """
    return _comm_of(model).ring


def fsdp_release(model: torch.nn.Module) -> None:
    """The model communicates as before `fsdp`, and its buffers go back to the pool: before pool.close().

    On all ranks at the same place, between steps.
    """
    comm = _comm_of(model)
    rings = {comm.ring, *(reduce.ring for reduce in _reducers(model))}
    for before in comm.before:
        before.restore()
    comm.watch.remove()
    for ring in rings:
        ring.free()


def _refuse_later_ones(model: torch.nn.Module, _inputs: Any) -> None:
    """What was sharded after the model was wrapped would gather in torch's memory, and take SMs, without a word."""
    for of_torch, module in sharded_modules(model):
        if not isinstance(of_torch._all_gather_comm, WindowedAllGather):
            name = next(name for name, other in model.named_modules() if other is module)
            raise errors.FailedPrecondition(f"the model was changed after fsdp(): module {name or 'root'} was sharded "
                                            "since, and would gather in torch's memory. Wrap it again: commpool.torch."
                                            "fsdp_release(model), then commpool.torch.fsdp(model, pool)")


def _reducers(model: torch.nn.Module) -> list[WindowedReduceScatter]:
    found = [shards.of_torch._reduce_scatter_comm for shards in shards_of(model)]
    return [comm for comm in found if isinstance(comm, WindowedReduceScatter)]


def _comm_of(model: torch.nn.Module) -> WindowedAllGather:
    comm = comm_of(model)
    if not isinstance(comm, WindowedAllGather):
        raise errors.FailedPrecondition(f"{type(model).__name__} has no ring: call commpool.torch.fsdp(model, pool)")
    return comm


def _make_room(pool: commpool.Pool, sizes: Sequence[int]) -> None:
    """One free piece for all: a symmetric pool grows in agreement only."""
    pool.reserve(sum((nbytes + 511) // 512 * 512 for nbytes in sizes))


def _set(modules: Sequence[Shards], gather: WindowedAllGather, reduce: Optional[WindowedReduceScatter]) -> None:
    for shards in modules:
        gather.before.append(Before(shards.of_torch))
        shards.module.set_custom_all_gather(gather)
        if reduce is not None:
            shards.module.set_custom_reduce_scatter(reduce)
            shards.module.set_force_sum_reduction_for_comms(True)
