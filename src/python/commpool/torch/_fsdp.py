"""FSDP2 with all-gathers in windows, by copy engines, so that they take no SM from the model's kernels."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any, Iterator, Literal, Optional, Sequence, TypeVar

import torch

import commpool
from commpool import errors
from commpool.sizes import format_size, index_of

from . import _beside, _group
from ._ring import Ring

_Model = TypeVar("_Model", bound=torch.nn.Module)
_INPUTS_AT_ONCE = 2  # one is reduced while one is filled
_SHARED = "models or settings"
_REPLACED = ("_all_gather_comm", "_reduce_scatter_comm", "force_sum_reduction_for_comms")  # of torch's parameter groups

logger = logging.getLogger("commpool.torch")


class WindowedAllGather:
    """FSDP2 asks it for a buffer, and then to gather into that."""

    def __init__(self, ring: Ring, groups: dict[str, Any]) -> None:
        self.ring, self._groups = ring, groups
        self.before: list[tuple[Any, dict[str, Any]]] = []  # how each module communicated
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
    # One free piece for all buffers, because a symmetric pool grows only in agreement.
    pool.reserve(depth * _rounded(gathers) + _INPUTS_AT_ONCE * _rounded(reduces))
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
    for of_torch, before in comm.before:
        for name, value in before.items():
            setattr(of_torch, name, value)
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
    comm = next((of_torch._all_gather_comm for of_torch, _ in sharded_modules(model)), None)
    if not isinstance(comm, WindowedAllGather):
        raise errors.FailedPrecondition(f"{type(model).__name__} has no ring: call commpool.torch.fsdp(model, pool)")
    return comm


def _rounded(nbytes: int) -> int:
    return (nbytes + 511) // 512 * 512


def _set(modules: Sequence[Shards], gather: WindowedAllGather, reduce: Optional[WindowedReduceScatter]) -> None:
    for shards in modules:
        gather.before.append((shards.of_torch, {name: getattr(shards.of_torch, name) for name in _REPLACED}))
        shards.module.set_custom_all_gather(gather)
        if reduce is not None:
            shards.module.set_custom_reduce_scatter(reduce)
            shards.module.set_force_sum_reduction_for_comms(True)


# What FSDP2 gathers and reduces of a model: read from torch's parameter groups once, when the model is wrapped.


@dataclasses.dataclass(frozen=True)
class Shards:
    """One FSDP module with parameters: its name, what it gathers, and over which process groups."""

    name: str
    module: Any
    of_torch: Any
    gathered_bytes: int
    reduced_bytes: int
    groups: tuple[Any, ...]

    def __str__(self) -> str:
        sizes = "x".join(str(group.size()) for group in self.groups)
        return f"{self.name or 'the root'}, {self.gathered_bytes} bytes gathered over {sizes} ranks"


def shards_of(model: torch.nn.Module) -> list[Shards]:
    """The shards of every FSDP module, in the order of the modules.

    Raises:
      InvalidArgument: no module of it was sharded.
      NotSupported: this torch has no own communication objects, or a module has several meshes.
    """
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        raise errors.NotSupported(f"torch {torch.__version__} has no FSDP2") from None
    if not hasattr(FSDPModule, "set_custom_all_gather"):
        raise errors.NotSupported(f"torch {torch.__version__} lets nobody choose FSDP2's all-gather buffers")
    found = [_shards(name, module, group) for name, module in model.named_modules() if isinstance(module, FSDPModule)
             for group in _single_group(name, module)]
    if not found:
        raise errors.InvalidArgument(f"{type(model).__name__} is not sharded: call torch.distributed.fsdp.fully_shard "
                                     "on its layers and on it, then commpool.torch.fsdp")
    return found


def live_at_once(model: torch.nn.Module) -> int:
    """The number of gathered buffers that FSDP2 has at a time: one in use, and those that it gathers ahead.

    Without settings of the program it gathers one module ahead.
    """
    from torch.distributed.fsdp import FSDPModule

    states = [module._get_fsdp_state() for module in model.modules() if isinstance(module, FSDPModule)]
    ahead = [len(states_ahead) for state in states
             for states_ahead in (state._states_to_forward_prefetch, state._states_to_backward_prefetch)]
    return 1 + max(1, *ahead)


def _groups_of(state: Any) -> list[Any]:
    """Newer versions of torch have several parameter groups for a module."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


def _single_group(name: str, module: Any) -> Iterator[Any]:
    groups = _groups_of(module._get_fsdp_state())
    if len(groups) > 1:
        raise errors.NotSupported(f"module {name or 'root'} has parameters on {len(groups)} meshes: torch lets nobody "
                                  "choose the buffers of such a module")
    yield from groups


def _shards(name: str, module: Any, of_torch: Any) -> Shards:
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo

    if not isinstance(of_torch.mesh_info, FSDPMeshInfo):
        raise errors.NotSupported(f"module {name or 'root'} is replicated, not sharded: nothing of it is gathered")
    meshes = [of_torch.mesh_info, of_torch.post_forward_mesh_info]
    groups = {mesh.shard_process_group.group_name: mesh.shard_process_group for mesh in meshes if mesh is not None}
    ranks = of_torch.mesh_info.shard_process_group.size()
    gathered = reduced = 0
    for parameter in of_torch.fsdp_params:
        policy, elements = parameter.mp_policy, parameter._sharded_param_data.numel() * ranks
        gathered += elements * _width(parameter, policy.param_dtype)
        reduced += elements * _width(parameter, policy.reduce_dtype or policy.param_dtype)
    return Shards(name, module, of_torch, gathered, reduced, tuple(groups.values()))


def _width(parameter: Any, wanted: Any) -> int:
    """The bytes of an element after its conversion to a type. If the parameter converts itself, this is an upper
    bound."""
    own: torch.dtype = parameter.sharded_param.dtype
    if wanted is None or not own.is_floating_point:
        return own.itemsize
    converts_itself = hasattr(parameter._sharded_local_tensor, "fsdp_pre_all_gather")
    return max(own.itemsize, wanted.itemsize) if converts_itself else int(wanted.itemsize)


def sharded_modules(model: torch.nn.Module) -> Iterator[tuple[Any, torch.nn.Module]]:
    """Every parameter group of torch and its module. It takes some microseconds, because each step calls it."""
    for module in model.modules():
        state = getattr(type(module), "_get_fsdp_state", None)
        if state is not None:
            for of_torch in _groups_of(state(module)):
                yield of_torch, module
