"""DistributedDataParallel with its gradient buckets in windows from the first step on."""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch

import commpool
from commpool import errors
from commpool.sizes import Size, format_size, index_of, parse_size

from . import _beside, _group
from ._advice import SizeRange, lies_in
from ._advise import advise
from ._buckets import Buckets, best, in_windows
from ._windowed_ddp import WindowedDDP

_MIB = 1 << 20
_BLOCK = 512
# NCCL starts a symmetric kernel with about 7 blocks on H100 and H200, which do not fill the links.
_MORE_BLOCKS = 16
_SHARED = "models or options"

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
      FailedPrecondition: it was released before.
    """
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
