"""DistributedDataParallel whose gradient buckets lie in windows, from the first step on."""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch

import commpool
from commpool import errors
from commpool.sizes import Size, format_size, parse_size

from . import _group
from ._advise import advise
from ._agreed import checked_group, same_everywhere
from ._stashed import let_go
from ._scope import use_pool

_MIB = 1 << 20
_BLOCK = 512

logger = logging.getLogger("commpool.torch")


class WindowedDDP(torch.nn.parallel.DistributedDataParallel):
    """torch's own, but for where its buckets lie. `ddp` makes it.

    torch moves the buckets once, before the second forward, or the third with static_graph, and never where unused
    parameters are looked for. It is made to do so here, in a scope, at one place on all ranks.
    """

    def __init__(self, net: torch.nn.Module, pool: commpool.Pool, **options: Any) -> None:
        """Takes DistributedDataParallel's options."""
        self._commpool, self._moved, self._released = pool, False, False
        super().__init__(net, **options)
        self._wrapped = _parameters(net)

    def _ddp_init_helper(self, *arguments: Any, **words: Any) -> None:
        with use_pool(self._commpool):
            super()._ddp_init_helper(*arguments, **words)  # type: ignore[no-untyped-call]

    def _pre_forward(self, *inputs: Any, **words: Any) -> Any:
        self._refuse_changes()
        if not self._moved and torch.is_grad_enabled():
            with use_pool(self._commpool):
                self._moved = bool(self.reducer._rebuild_buckets())
            if self._moved:
                self._has_rebuilt_buckets = True
                self._commpool.reclaim()
        return super()._pre_forward(*inputs, **words)  # type: ignore[no-untyped-call]

    def release(self) -> torch.nn.Module:
        """`ddp_release` says what it does."""
        self._refuse_released()
        for parameter in self.module.parameters():
            if parameter.grad is not None and _lies_in(self._commpool, parameter.grad):
                parameter.grad = parameter.grad.clone()
        group, self._released = self.process_group, True
        del self.reducer
        self.logger = None  # it has the reducer, too
        let_go(group, torch.device("cuda", self._commpool.device))
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


def ddp(net: torch.nn.Module, pool: commpool.Pool, *, bucket: Optional[Size] = None, **options: Any) -> WindowedDDP:
    """DistributedDataParallel(net, **options) with its gradient buckets in windows of a symmetric pool.

        net = commpool.ddp(net, pool, device_ids=[rank])

    COLLECTIVE over the process group. torch divides the gradients and sums them, for which NCCL has symmetric kernels.
    With gradient_as_bucket_view, which is the default here, the gradients lie in the buckets, too. The pool holds them
    once, and twice from the start of the step that moves them: so much is reserved. `ddp_release` ends it.

    Args:
      net: the same on all ranks.
      pool: symmetric, and registered with the process group.
      bucket: bytes of a bucket. None: what `advise` found best for this group; logger "commpool.torch" says what.
      options: as of DistributedDataParallel.

    Raises:
      InvalidArgument: the pool has no windows, or lazy_bucket_allocation was asked for: its buckets move in each step.
      FailedPrecondition: the group has no communicator, or the pool is not registered with it.
      Disagreement: the ranks' models or options differ: it names the first parameter. Nothing was changed.
    """
    if pool.mode != "symmetric":
        raise errors.InvalidArgument(f"{pool!r} has no windows: make it with symmetric_across=group")
    if options.get("lazy_bucket_allocation"):
        raise errors.InvalidArgument("lazy_bucket_allocation makes buckets anew in each backward: they would not stay "
                                     "in windows")
    group = checked_group(options.get("process_group"))
    _group.communicator_of(group, pool.device)
    words = [f"{name}={value}" for name, value in sorted(options.items()) if isinstance(value, (bool, int, float, str))]
    same_everywhere(group, "models or options", [*words, f"a bucket of {bucket}", *_described(net)])
    if "bucket_cap_mb" not in options:
        nbytes = advise(group).bucket_bytes if bucket is None else parse_size(bucket, "bucket")
        options["bucket_cap_mb"] = nbytes / _MIB
    options.setdefault("gradient_as_bucket_view", True)
    gradients = sum(_rounded(parameter) for parameter in net.parameters() if parameter.requires_grad)
    pool.reserve(gradients if options.get("find_unused_parameters") and not options.get("static_graph") else
                 2 * gradients)
    _refuse_unregistered(pool, group)
    made = WindowedDDP(net, pool, **options)
    logger.info("DDP has gradients of %s in %r, in buckets of %s", format_size(gradients), pool,
                format_size(int(options["bucket_cap_mb"] * _MIB)))
    return made


def ddp_release(net: WindowedDDP) -> torch.nn.Module:
    """Ends what `ddp` made, and returns the model that was wrapped: nothing of it lies in the pool any more.

    COLLECTIVE over the process group, between steps; before pool.close(). Gradients that lay in buckets move into
    torch's memory. What torch's process group keeps of the last all-reduces is waited for.

    Raises:
      FailedPrecondition: it was released before.
    """
    return net.release()


def _lies_in(pool: commpool.Pool, tensor: torch.Tensor) -> bool:
    block = commpool.block_of(tensor)
    return block is not None and block.pool == pool.handle


def _rounded(parameter: torch.nn.Parameter) -> int:
    """A bucket is at least one parameter, and a block of the pool is a multiple of 512 bytes."""
    return -(-parameter.numel() * parameter.itemsize // _BLOCK) * _BLOCK + _BLOCK


def _parameters(net: torch.nn.Module) -> dict[str, tuple[int, bool]]:
    return {name: (id(parameter), parameter.requires_grad) for name, parameter in net.named_parameters()}


def _described(net: torch.nn.Module) -> list[str]:
    return [f"parameter {name} {str(parameter.dtype).removeprefix('torch.')} {list(parameter.shape)}"
            f"{'' if parameter.requires_grad else ', frozen'}" for name, parameter in net.named_parameters()]


def _refuse_unregistered(pool: commpool.Pool, group: Any) -> None:
    with pool.allocate(_BLOCK) as probe:
        try:
            pool.window_of(probe.pointer, group)
        except errors.NotFound:
            raise errors.FailedPrecondition(f"{pool!r} is not registered with process group {group.group_name}: call "
                                            "pool.register_with(group) on all ranks") from None
