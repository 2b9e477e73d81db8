"""What FSDP2 gathers and reduces of a model. It is read from torch's parameter groups once, when the model is
wrapped."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator

import torch

from commpool import errors


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


def comm_of(model: torch.nn.Module) -> Any:
    """The communication object that gathers for the first sharded module; None if there is none."""
    return next((of_torch._all_gather_comm for of_torch, _ in sharded_modules(model)), None)


class Before:
    """How a module communicated before `fsdp` wrapped it."""

    def __init__(self, of_torch: Any) -> None:
        self._of_torch = of_torch
        self._kept = {name: getattr(of_torch, name)
                      for name in ("_all_gather_comm", "_reduce_scatter_comm", "force_sum_reduction_for_comms")}

    def restore(self) -> None:
        """Makes it communicate so again."""
        for name, value in self._kept.items():
            setattr(self._of_torch, name, value)
