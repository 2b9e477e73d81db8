"""The contexts by which vLLM, SGLang and Megatron-LM put tensors into NCCL's windows, over pools of ours.

    from commpool.torch import dropins

    dropins.serve(pynccl_comm, pool)                      # once, on all ranks
    pynccl_allocator.nccl_symm_mem_context = dropins.nccl_symm_mem_context

Nothing is compiled at start, nothing is registered while tensors are made: the pool has its windows from `reserve`.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Optional

import commpool
from commpool import errors, options
from commpool.handles import communicator_handle
from commpool.sizes import Size

from ._agreed import checked_group
from ._pool import Pool
from ._scope import use_pool

# By the communicator's handle.
_served: dict[int, tuple[commpool.Pool, Any]] = {}


def _handle(communicator: Any) -> int:
    """Of a group coordinator with a PyNcclCommunicator, of the latter, of its ncclComm_t, of a process group."""
    inner = getattr(communicator, "pynccl_comm", None) or communicator
    inner = getattr(inner, "comm", inner)
    value = getattr(inner, "value", inner)
    return communicator_handle(value, None)


def serve(communicator: Any, pool: commpool.Pool, *, sizes: Optional[options.SizeRange] = None) -> None:
    """The contexts below take their memory for a communicator from a pool, from now on.

    Args:
      communicator: as the framework has it: a PyNcclCommunicator, a group coordinator, a process group, a handle.
      pool: symmetric, registered with it, with enough reserved; frees="ordered" for ranks in lockstep.
      sizes: (least, most) of what windows serve, the same on all ranks, as `advise().sizes` is.

    Raises:
      InvalidArgument: the pool has no windows.
    """
    if pool.mode != "symmetric":
        raise errors.InvalidArgument(f"{pool!r} has no windows: make it with symmetric_across=communicator")
    _served[_handle(communicator)] = pool, use_pool(pool, sizes=sizes)


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

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._scope.__exit__(kind, error, trace)


class SymmetricMemoryContext(nccl_symm_mem_context):
    """SGLang's: of a group coordinator."""

    def __init__(self, group_coordinator: Any) -> None:
        """Of the coordinator's PyNcclCommunicator."""
        super().__init__(group_coordinator, disabled=getattr(group_coordinator, "world_size", 2) == 1)


def use_symmetric_memory(group_coordinator: Any, disabled: bool = False) -> Any:
    """SGLang's: the context, or one that does nothing."""
    return contextlib.nullcontext() if disabled else SymmetricMemoryContext(group_coordinator)


def create_nccl_mem_pool(symmetric: Optional[bool] = None, group: Any = None, device: Any = None, *,
                         reserve: Optional[Size] = None) -> Pool:
    """Megatron-LM's: a pool for its user buffers (nccl_ub).

    Args:
      symmetric: windows; else ordinary registrations, made where NCCL can be asked: at the end of `nccl_mem`.
      group: None is the default group.
      device: None is the group's.
      reserve: what a symmetric pool has at once; it grows in agreement only.
    """
    group = checked_group(group)
    if symmetric:
        return Pool("nccl_ub", device=device, symmetric_across=group, reserve=reserve)
    return Pool("nccl_ub", device=device, reserve=reserve)


class nccl_mem:
    """Megatron-LM's: `with nccl_mem(pool, group=group):` around what makes the buffers; they are registered after."""

    def __init__(self, pool: commpool.Pool, enabled: bool = True, device: Any = None, group: Any = None) -> None:
        """A pool of `create_nccl_mem_pool`; `enabled=False` catches nothing."""
        self.pool, self._group = pool, checked_group(group) if enabled else None
        self._scope: Any = use_pool(pool, device=device) if enabled else contextlib.nullcontext()

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._scope.__exit__(kind, error, trace)
        if self._group is not None and self.pool.mode != "symmetric" and error is None:
            self.pool.register_with(self._group)
            self.pool.register_pending()
