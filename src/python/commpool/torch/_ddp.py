"""DistributedDataParallel with its gradient buckets in windows from the first step on: they are made there, and torch
itself moves them to their final place."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Optional

import torch
import torch.distributed as dist

import commpool
from commpool import errors
from commpool.sizes import Size, format_size, index_of, parse_size

from . import _beside, _group
from ._advice import Buckets, Placed, SizeRange, best, in_windows, lies_in, placed
from ._advise import advise
from ._scope import use_pool

_MIB = 1 << 20
_BLOCK = 512
# NCCL starts a symmetric kernel with about 7 blocks on H100 and H200, which do not fill the links.
_MORE_BLOCKS = 16
_SHARED = "models or options"
_SECONDS = 60
_BETWEEN_LOOKS = 0.01

logger = logging.getLogger("commpool.torch")


def ddp(net: torch.nn.Module, pool: commpool.Pool, *, bucket: Optional[Size] = None, blocks: Optional[int] = None,
        **options: Any) -> WindowedDDP:
    """DistributedDataParallel(net, **options) with its gradient buckets in windows of a symmetric pool.

        net = commpool.ddp(net, pool, device_ids=[rank])

    COLLECTIVE over the process group. torch divides the gradients and sums them, because NCCL has symmetric kernels for
    sums. With gradient_as_bucket_view, the default here, the gradients are in the buckets too. The pool holds them
    once, but twice during the step that moves them: so much is reserved. `ddp_release` ends it.

    `advise` measures, and the fastest choice for all buckets of this model is taken: their size, which sizes are in
    windows (others stay in torch's memory, such as an embedding that is too large to gain), and whether they are
    reduced over a communicator of their own with more blocks. It does not choose what the program gives; if the program
    gives `bucket` and `blocks`, it measures nothing. `net.buckets` has the choice, logger "commpool.torch" prints it,
    `net.placed()` counts the buckets.

    Args:
      net: the same on all ranks.
      pool: symmetric, and registered with the process group.
      bucket: bytes of a bucket; then all buckets are in windows. None: the best size.
      blocks: the minimum number of blocks in kernels; 0: NCCL chooses. None: the best number.
      options: as for DistributedDataParallel.

    Raises:
      InvalidArgument: the pool has no windows, or lazy_bucket_allocation was asked for: its buckets move in each step.
      FailedPrecondition: the group has no communicator, or the pool is not registered with it.
      Disagreement: the ranks' models or options differ: it names the first parameter. Nothing was changed.
    """
    with errors.refusing(lambda why: _group.refuse(options.get("process_group"), _SHARED, why)):
        _group.check_windows(pool, "ddp")
        nbytes = None if bucket is None else parse_size(bucket, "bucket")
        blocks = None if blocks is None else index_of(blocks, "blocks", 31)
        if options.get("lazy_bucket_allocation"):
            raise errors.InvalidArgument("lazy_bucket_allocation makes buckets anew in each backward: they would not "
                                         "stay in windows")
        group = _group.checked_group(options.get("process_group"))
        _group.communicator_of(group, pool.device)
    words = [f"{name}={value}" for name, value in sorted(options.items()) if isinstance(value, (bool, int, float, str))]
    _group.same_everywhere(group, _SHARED,
                           [*words, f"a bucket of {bucket}", f"{blocks} blocks", *_described(net)])
    buckets = _buckets(net, group, nbytes, blocks, options)
    options.setdefault("gradient_as_bucket_view", True)
    gradients = sum(_rounded(parameter) for parameter in net.parameters() if parameter.requires_grad and
                    _fits(parameter, buckets.windows))
    pool.reserve(max(gradients if options.get("find_unused_parameters") and not options.get("static_graph") else
                     2 * gradients, _BLOCK))
    _refuse_unregistered(pool, group)
    if buckets.blocks:
        options["process_group"] = _beside.with_blocks(group, pool, buckets.blocks)
    made = WindowedDDP(net, pool, buckets, **options)
    logger.info("DDP has gradients of %s in %r, in %s", format_size(gradients), pool, buckets)
    return made


def _buckets(net: torch.nn.Module, group: Any, nbytes: Optional[int], blocks: Optional[int],
             options: dict[str, Any]) -> Buckets:
    """The buckets that the program asked for, or the best ones. Puts their size into `options`."""
    if nbytes is not None and blocks is not None:
        buckets = Buckets(nbytes, blocks=blocks)
    else:
        advices = [advise(group, blocks=least) for least in ((0, _MORE_BLOCKS) if blocks is None else (blocks,))]
        if nbytes is not None:
            buckets = in_windows(list(net.parameters()), advices, nbytes)
        else:
            cap = options.get("bucket_cap_mb")
            buckets = best(list(net.parameters()), advices, None if cap is None else int(cap * _MIB))
    options["bucket_cap_mb"] = buckets.nbytes / _MIB
    return buckets


def ddp_release(net: WindowedDDP, *, alive: bool = True) -> torch.nn.Module:
    """Ends what `ddp` made, and returns the original model. After that nothing of it is in the pool.

    COLLECTIVE over the process group, between steps, before pool.close(). Gradients in buckets move into torch's
    memory. The call waits until torch's process group keeps nothing of the last all-reduces.

    `alive=False` is for a group that was aborted after a loss: it asks nothing of the other ranks.

    Raises:
      FailedPrecondition: it was released before, or `ddp` did not make it.
    """
    if not isinstance(getattr(net, "_orig_mod", net), WindowedDDP):  # torch.compile wraps it
        raise errors.FailedPrecondition(f"{type(net).__name__} is none of ddp's: call commpool.torch.ddp(net, pool)")
    return net.release(alive)


def _rounded(parameter: torch.nn.Parameter) -> int:
    """A bucket is at least one parameter, and a block of the pool is a multiple of 512 bytes."""
    return -(-parameter.numel() * parameter.itemsize // _BLOCK) * _BLOCK + _BLOCK


def _fits(parameter: torch.nn.Parameter, windows: Optional[SizeRange]) -> bool:
    """Whether it may be in a window: a bucket is at least as large as each of its gradients."""
    return windows is not None and lies_in(max(parameter.numel() * parameter.itemsize, windows[0]), windows)


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

    def join_hook(self, **_words: Any) -> Any:
        """Raises NotSupported, and `join` with it."""
        raise errors.NotSupported("join(): a rank without inputs reduces in torch's memory what the others reduce in "
                                  "windows: give all ranks as many batches, or join a DistributedDataParallel")

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
    last = torch.zeros(1, device=device)
    storage = last.untyped_storage()
    users = torch._C._storage_Use_Count(storage._cdata)
    dist.all_reduce(last, group=group, async_op=True)
    del last
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
