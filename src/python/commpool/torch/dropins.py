"""The contexts by which vLLM, SGLang and Megatron-LM put tensors into NCCL's windows, over pools of ours.

    from commpool.torch import dropins

    dropins.serve(pynccl_comm, pool)                      # once, on all ranks
    pynccl_allocator.nccl_symm_mem_context = dropins.nccl_symm_mem_context

Nothing is compiled at start, nothing is registered while tensors are made: the pool has its windows from `reserve`.

And the names by which memory sleeps, over pools as well: `torch_memory_saver`, and vLLM's `CuMemAllocator`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import commpool
from commpool import errors, options
from commpool.handles import communicator_handle

from . import _group
from ._cumem import CuMemAllocator
from ._megatron import (MemPoolAllocatorWithoutRegistration, MultiGroupMemPoolAllocator, create_nccl_mem_pool,
                        deregister_mem_pool, init, nccl_mem, register_mem_pool)
from ._memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver
from ._scope import use_pool
from ._tensor_parallel import RANGES, size_words

__all__ = ["CuMemAllocator", "MemPoolAllocatorWithoutRegistration", "MultiGroupMemPoolAllocator",
           "SymmetricMemoryContext", "TorchMemorySaver", "configure_subprocess", "create_nccl_mem_pool",
           "deregister_mem_pool", "init", "nccl_mem", "nccl_symm_mem_context", "register_mem_pool", "serve",
           "stop_serving", "torch_memory_saver", "use_symmetric_memory"]

# By the communicator's handle.
_served: dict[int, tuple[commpool.Pool, Any]] = {}


def _handle(communicator: Any) -> int:
    """Of a group coordinator with a PyNcclCommunicator, of the latter, of its ncclComm_t, of a process group."""
    inner = getattr(communicator, "pynccl_comm", None) or communicator
    inner = getattr(inner, "comm", inner)
    value = getattr(inner, "value", inner)
    return communicator_handle(value, None)


def _group_of(communicator: Any) -> Any:
    """The process group that belongs to a communicator, where it tells one."""
    candidates = (communicator, *(getattr(communicator, name, None) for name in ("device_group", "group")))
    return next(filter(_group.is_member, candidates), None)


def serve(communicator: Any, pool: commpool.Pool, *, sizes: Optional[options.SizeRange] = None) -> None:
    """The contexts below take their memory for a communicator from a pool, from now on. COLLECTIVE over its group.

    The ranks compare the range of sizes where the communicator is, or has, a process group; an ncclComm_t has none.

    Args:
      communicator: as the framework has it: a PyNcclCommunicator, a group coordinator, a process group, a handle.
      pool: symmetric, registered with it, with enough reserved; frees="ordered" for ranks in lockstep.
      sizes: (least, most) of what windows serve, the same on all ranks, as `advise().sizes` is.

    Raises:
      InvalidArgument: the pool has no windows.
      FailedPrecondition: the group has no communicator.
      Disagreement: the ranks gave different ranges, named for both.
    """
    handle, group = _handle(communicator), _group_of(communicator)
    told = contextlib.nullcontext() if group is None else errors.refusing(lambda why: _group.refuse(group, RANGES, why))
    with told:
        _group.check_windows(pool, "serve", "communicator")
        said = size_words(sizes)
    if group is not None:
        _group.same_everywhere(group, RANGES, [said])
    _served[handle] = pool, use_pool(pool, sizes=sizes)


def stop_serving(communicator: Any) -> None:
    """Ends `serve`: before the pool is closed."""
    _served.pop(_handle(communicator), None)


class nccl_symm_mem_context:
    """vLLM's: `with nccl_symm_mem_context(pynccl_comm):` around what makes the tensor of an all-reduce."""

    def __init__(self, pynccl_comm: Any, disabled: bool = False) -> None:
        """`disabled`, or a communicator of one rank, catches nothing."""
        self.disabled = disabled or getattr(pynccl_comm, "world_size", 2) == 1
        self._scope: Any = contextlib.nullcontext()
        if not self.disabled:
            found = _served.get(_handle(pynccl_comm))
            if found is None:
                raise errors.FailedPrecondition("no pool serves this communicator: call commpool.torch.dropins.serve("
                                                "communicator, pool) on all ranks before")
            self._scope = found[1].again()

    def __enter__(self) -> Any:
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)


class SymmetricMemoryContext(nccl_symm_mem_context):
    """SGLang's: of a group coordinator."""

    def __init__(self, group_coordinator: Any) -> None:
        """Of the coordinator's PyNcclCommunicator."""
        super().__init__(group_coordinator, disabled=getattr(group_coordinator, "world_size", 2) == 1)


def use_symmetric_memory(group_coordinator: Any, disabled: bool = False) -> Any:
    """SGLang's: the context, or one that does nothing."""
    return contextlib.nullcontext() if disabled else SymmetricMemoryContext(group_coordinator)
