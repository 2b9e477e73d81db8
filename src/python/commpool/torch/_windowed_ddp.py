"""DistributedDataParallel whose buckets are made in windows, and moved to their final place by torch itself."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
import torch.distributed as dist

import commpool
from commpool import errors

from ._buckets import Buckets, Placed, placed
from ._scope import use_pool

_SECONDS = 60
_BETWEEN_LOOKS = 0.01


class WindowedDDP(torch.nn.parallel.DistributedDataParallel):
    """torch's own class, except for the place of its buckets. `ddp` makes it.

    torch moves the buckets once, before the second forward, or the third with static_graph; it never moves them if it
    looks for unused parameters. This class lets it move them in a scope, at the same place on all ranks.
    """

    def __init__(self, net: torch.nn.Module, pool: commpool.Pool, buckets: Buckets, **options: Any) -> None:
        """Takes DistributedDataParallel's options."""
        self._commpool, self._moved, self._released, self.buckets = pool, False, False, buckets
        super().__init__(net, **options)
        self._wrapped = _parameters(net)

    def _in_windows(self) -> contextlib.AbstractContextManager[Any]:
        windows = self.buckets.windows
        return contextlib.nullcontext() if windows is None else use_pool(self._commpool, sizes=windows)

    def _ddp_init_helper(self, *arguments: Any, **words: Any) -> None:
        with self._in_windows():
            super()._ddp_init_helper(*arguments, **words)  # type: ignore[no-untyped-call]

    def _pre_forward(self, *inputs: Any, **words: Any) -> Any:
        self._refuse_changes()
        if not self._moved and torch.is_grad_enabled():
            with self._in_windows():
                self._moved = bool(self.reducer._rebuild_buckets())
            if self._moved:
                self._has_rebuilt_buckets = True
                self._commpool.reclaim()
        return super()._pre_forward(*inputs, **words)  # type: ignore[no-untyped-call]

    def placed(self) -> Placed:
        """How many of the buckets lie in windows and how many in torch's memory, and their bytes."""
        self._refuse_released()
        said = self._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        sizes = said.get("rebuilt_bucket_sizes") or said["bucket_sizes"]
        return placed([int(nbytes) for nbytes in sizes.split(",")], self.buckets.windows)

    def release(self, alive: bool) -> torch.nn.Module:
        """`ddp_release` documents it."""
        self._refuse_released()
        for parameter in self.module.parameters():
            if parameter.grad is not None and _lies_in(self._commpool, parameter.grad):
                parameter.grad = parameter.grad.clone()
        group, self._released = self.process_group, True
        del self.reducer
        self.logger = None  # it holds the reducer too
        if alive:
            let_go(group, torch.device("cuda", self._commpool.device))
        else:
            del self.process_group  # what it keeps goes with it
        module: torch.nn.Module = self.module
        return module

    def _refuse_released(self) -> None:
        if self._released:
            raise errors.FailedPrecondition("ddp_release took this model's gradient buckets. Wrap it again: "
                                            "commpool.torch.ddp(net.module, pool)")

    def _refuse_changes(self) -> None:
        self._refuse_released()
        now = _parameters(self.module)
        if now == self._wrapped:
            return
        changed = next(name for name in {**self._wrapped, **now} if self._wrapped.get(name) != now.get(name))
        how = ("is new" if changed not in self._wrapped else "is gone" if changed not in now else
               "was frozen, thawed or replaced")
        raise errors.FailedPrecondition(f"the model was changed after ddp(): parameter {changed} {how}, and the "
                                        "gradient buckets are those of the model as it was. Wrap it again: "
                                        "commpool.torch.ddp(net.module, pool)")


def _lies_in(pool: commpool.Pool, tensor: torch.Tensor) -> bool:
    block = commpool.block_of(tensor)
    return block is not None and block.pool == pool.handle


def _parameters(net: torch.nn.Module) -> dict[str, tuple[int, bool]]:
    return {name: (id(parameter), parameter.requires_grad) for name, parameter in net.named_parameters()}


def let_go(group: Any, device: torch.device) -> None:
    """Waits until the group keeps no tensor of earlier collectives. COLLECTIVE over the group.

    ProcessGroupNCCL keeps the tensors of an asynchronous collective until somebody waits for it. If nobody does, as in
    DDP, it keeps them until its watchdog has seen the end and a later collective comes. It goes through them in order.
    So this call makes one more that nobody waits for: when its tensor is gone, all are.

    Raises:
      DeadlineExceeded: the group did not let go.
    """
    witness = torch.zeros(1, device=device)
    storage = witness.untyped_storage()
    users = torch._C._storage_Use_Count(storage._cdata)
    dist.all_reduce(witness, group=group, async_op=True)
    del witness
    torch.cuda.synchronize(device)
    end = time.monotonic() + _SECONDS
    while True:
        kept = torch.full((1,), float(torch._C._storage_Use_Count(storage._cdata) >= users), device=device)
        dist.all_reduce(kept, group=group)  # the later collective; the ranks stop together too
        if not kept.item():
            return
        if time.monotonic() > end:
            raise errors.DeadlineExceeded(f"process group {group.group_name} still keeps tensors of its collectives "
                                          f"{_SECONDS} s after their end")
        time.sleep(_BETWEEN_LOOKS)  # the watchdog looks every 100 ms, and notifies nobody
