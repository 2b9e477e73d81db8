"""FSDP2 with all-gathers in windows, by copy engines, so that they take no SM from the model's kernels."""

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
_INPUTS_AT_ONCE = 2  # one is reduced while one is filled
_SHARED = "models or settings"

logger = logging.getLogger("commpool.torch")


class WindowedAllGather:
    """FSDP2 asks it for a buffer, and then to gather into that."""

    def __init__(self, ring: Ring, groups: dict[str, Any]) -> None:
        self.ring, self._groups = ring, groups
        self.before: list[Before] = []
        self.watch: Any = None  # for modules that are sharded later

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The next buffer of the ring."""
        return self.ring.take(math.prod(size), dtype)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any,
                 async_op: bool = False) -> Any:
        """Gathers over the communicator with copy engines, but only into the ring's buffers."""
        beside = self._groups.get(group.group_name)
        if beside is None or not self.ring.holds(output_tensor):
            raise errors.FailedPrecondition(f"an all-gather over group {group.group_name} was not there when the model "
                                            "was wrapped: wrap it again after changing its meshes")
        return _beside.all_gather(output_tensor, input_tensor, beside, async_op)


class WindowedReduceScatter:
    """The same for reduce-scatters: the input is in a window, the sharded gradient in torch's memory.

    The gradient lives until the program zeroes it, so one ring could not hold a step's gradients.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._elements = 0

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """FSDP2 asks for the input first, then for the output, which is smaller."""
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
    communicator of their own, which uses copy engines. They use the buffers in turn. The buffers stay in the pool until
    `fsdp_release` or the end of the model; logger "commpool.torch" prints their size, and
    `all_gather_ring(model).total_bytes` returns it.

    Args:
      model: with FSDP2's modules. Each has the same parameters on all ranks.
      pool: symmetric, over the ranks that shard the model.
      buffers: the number of modules that are gathered at once. None: one more than FSDP2 gathers ahead.
      reduce_scatters: "pool" puts their inputs into windows too. They sum instead of averaging, because NCCL has
        symmetric kernels for sums; then a kernel of torch divides the gradient.

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
    """The buffers of a model that `fsdp` returned: their number, their size, how often they were taken.

    Raises:
      FailedPrecondition: `fsdp` has not seen it.
    """
    return _comm_of(model).ring


def fsdp_release(model: torch.nn.Module) -> None:
    """Makes the model communicate as before `fsdp`; its buffers go back to the pool. Call it before pool.close(),
    on all ranks at the same place, between steps.
    """
    comm = _comm_of(model)
    rings = {comm.ring, *(reduce.ring for reduce in _reducers(model))}
    for before in comm.before:
        before.restore()
    comm.watch.remove()
    for ring in rings:
        ring.free()


def _refuse_later_ones(model: torch.nn.Module, _inputs: Any) -> None:
    """Refuses modules that were sharded after the wrap: they would gather in torch's memory and take SMs, silently."""
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
    """Makes one free piece for all buffers, because a symmetric pool grows only in agreement."""
    pool.reserve(sum((nbytes + 511) // 512 * 512 for nbytes in sizes))


def _set(modules: Sequence[Shards], gather: WindowedAllGather, reduce: Optional[WindowedReduceScatter]) -> None:
    for shards in modules:
        gather.before.append(Before(shards.of_torch))
        shards.module.set_custom_all_gather(gather)
        if reduce is not None:
            shards.module.set_custom_reduce_scatter(reduce)
            shards.module.set_force_sum_reduction_for_comms(True)
