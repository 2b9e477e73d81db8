"""The contexts by which vLLM, SGLang and Megatron-LM put tensors into NCCL's windows, over pools of ours.

    from commpool.torch import dropins

    dropins.serve(pynccl_comm, pool)                      # once, on all ranks
    pynccl_allocator.nccl_symm_mem_context = dropins.nccl_symm_mem_context

Nothing is compiled at start, nothing is registered while tensors are made: the pool has its windows from `reserve`.

And the names by which memory sleeps, over pools as well: `torch_memory_saver`, and vLLM's `CuMemAllocator`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional, Sequence

import commpool
from commpool import errors, options
from commpool.handles import communicator_handle
from commpool.sizes import Size

from . import _group
from ._fallback import fell_back
from ._install import ensure_installed
from ._pool import Pool
from ._scope import use_pool
from ._sleeping_names import CuMemAllocator, TorchMemorySaver, configure_subprocess, torch_memory_saver
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


class _OverScope:
    """A context manager over a scope of ours."""

    _scope: Any

    def __enter__(self) -> Any:
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)


class nccl_symm_mem_context(_OverScope):
    """vLLM's: `with nccl_symm_mem_context(pynccl_comm):` around what makes the tensor of an all-reduce."""

    def __init__(self, pynccl_comm: Any, disabled: bool = False) -> None:
        """`disabled`, or a communicator of one rank, catches nothing."""
        self.disabled = disabled or getattr(pynccl_comm, "world_size", 2) == 1
        self._scope = contextlib.nullcontext()
        if not self.disabled:
            found = _served.get(_handle(pynccl_comm))
            if found is None:
                raise errors.FailedPrecondition("no pool serves this communicator: call commpool.torch.dropins.serve("
                                                "communicator, pool) on all ranks before")
            self._scope = found[1].again()


class SymmetricMemoryContext(nccl_symm_mem_context):
    """SGLang's: of a group coordinator."""

    def __init__(self, group_coordinator: Any) -> None:
        """Of the coordinator's PyNcclCommunicator."""
        super().__init__(group_coordinator, disabled=getattr(group_coordinator, "world_size", 2) == 1)


def use_symmetric_memory(group_coordinator: Any, disabled: bool = False) -> Any:
    """SGLang's: the context, or one that does nothing."""
    return contextlib.nullcontext() if disabled else SymmetricMemoryContext(group_coordinator)


# Megatron-LM's nccl_allocator.


def init() -> None:
    """Compiles nothing, and changes no environment variable: NCCL_NVLS_ENABLE and torch's hooks stay the user's."""
    ensure_installed()


def create_nccl_mem_pool(symmetric: Optional[bool] = None, group: Any = None, device: Any = None, *,
                         reserve: Optional[Size] = None) -> Pool:
    """A pool for user buffers (nccl_ub).

    Args:
      symmetric: windows; else ordinary registrations, made at the end of a context, where NCCL may be called.
      group: None is the default group. It has all ranks of the groups that are registered later.
      device: None is the group's.
      reserve: what a symmetric pool has at once; it grows only in agreement.
    """
    group = _group.checked_group(group)
    if symmetric:
        return Pool("nccl_ub", device=device, symmetric_across=group, reserve=reserve)
    return Pool("nccl_ub", device=device, reserve=reserve)


def register_mem_pool(pool: commpool.Pool, group: Any, symmetric: bool = True) -> None:
    """Registers the pool's memory, now and later, with a group. A second call registers what has come since.

    For a symmetric pool all ranks call it: each with a group that it is in, or with what `new_group` returned. Only the
    creation of the pool decides about windows: without them `symmetric` is a second choice, and is counted.
    """
    if symmetric and pool.mode != "symmetric":
        fell_back("nccl_ub without windows", f"{pool!r} has no windows, and is registered as ordinary buffers: make it "
                                             "with create_nccl_mem_pool(symmetric=True), or say symmetric=False")
    pool.register_with(group)
    if pool.mode != "symmetric":
        pool.register_pending()


def deregister_mem_pool(pool: commpool.Pool, group: Any) -> None:
    """Ends the pool's registrations with a group, before the group is destroyed. It is collective as above."""
    pool.deregister(group)


class MemPoolAllocatorWithoutRegistration(_OverScope):
    """Use `with MemPoolAllocatorWithoutRegistration(pool):` around the code that makes the buffers, then
    `register_mem_pool`."""

    def __init__(self, pool: commpool.Pool) -> None:
        """Takes a pool of `create_nccl_mem_pool`."""
        self.pool = pool
        self._scope = use_pool(pool)


class MultiGroupMemPoolAllocator(MemPoolAllocatorWithoutRegistration):
    """The same, but its end registers the pool with several groups, in their order."""

    def __init__(self, pool: commpool.Pool, groups: Sequence[Any], symmetric: bool = True) -> None:
        """`groups` are the groups with this rank; each rank has the same number."""
        for group in groups:
            if not _group.is_group(group):
                raise errors.InvalidArgument(f"{group!r} is no process group")
        super().__init__(pool)
        self.groups, self.symmetric = list(groups), symmetric

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is None:
            for group in self.groups:
                register_mem_pool(self.pool, group, self.symmetric)


class nccl_mem(MultiGroupMemPoolAllocator):
    """Use `with nccl_mem(pool, group=group):` around the code that makes the buffers. Its end registers them."""

    def __init__(self, pool: commpool.Pool, enabled: bool = True, device: Any = None, group: Any = None,
                 symmetric: bool = True) -> None:
        """`enabled=False` catches nothing."""
        super().__init__(pool, [_group.checked_group(group)] if enabled else [], symmetric)
        self._scope = use_pool(pool, device=device) if enabled else contextlib.nullcontext()
