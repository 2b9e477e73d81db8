"""The cases of fsdp_test on each rank. Rank 0 prints the results of all ranks as a line of JSON for each case."""

import sys
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from routed import commpool

from commpool.torch import _beside

from rank_cases import DEVICE, RANK, Scale, Scales, end, leave, losses_of, refusal, run_cases

WIDTH = 4096


def sharded(widths=(WIDTH,) * 4, **words):
    model = Scales(widths)
    for layer in model.layers:
        fully_shard(layer, **words)
    return fully_shard(model, **words)


def train(model, steps=3):
    """Trains on batches that differ by rank. Returns the losses and the last layer's shard."""
    losses = losses_of(model, torch.full((WIDTH,), (1.0 + RANK) / 8, device=DEVICE), steps)
    return losses, [layer.weight.to_local()[0].item() for layer in model.layers]


def windowed(group, **words):
    pool = commpool.Pool("training", symmetric_across=group)
    return pool, commpool.fsdp(sharded(), pool, **words)


def trains_as_stock(group):
    stock = sharded()
    said = [train(stock)]
    pool, model = windowed(group)
    ring = commpool.all_gather_ring(model)
    said += [train(model), ring.buffers, ring.nbytes, ring.taken, pool.stats().allocated_bytes.current]
    return [*said, end(pool, model), train(model, 1) == train(stock, 1)]


def reduces_in_windows(group):
    stock = train(sharded())
    pool, model = windowed(group, reduce_scatters="pool")
    said, reduce = [stock, train(model), pool.stats().allocated_bytes.current], dist.reduce_scatter_tensor
    forced = {layer._get_fsdp_state()._fsdp_param_group.force_sum_reduction_for_comms for layer in model.layers}
    operations = []

    def noted(*tensors, op, **words):
        operations.append(str(op))
        return reduce(*tensors, op=op, **words)

    with unittest.mock.patch.object(dist, "reduce_scatter_tensor", noted):
        model(torch.ones(WIDTH, device=DEVICE)).sum().backward()
    said.append([list(forced), operations])
    gradient = model(torch.ones(WIDTH, device=DEVICE)).sum().backward() or model.layers[0].weight.grad
    said.append(commpool.block_of(gradient.to_local()) is None)
    del gradient
    return [*said, end(pool, model)]


def prefetches_further(group):
    stock, model, pool = train(sharded()), sharded(), commpool.Pool(symmetric_across=group)
    for place, layer in enumerate(model.layers):
        layer.set_modules_to_forward_prefetch(list(model.layers[place + 1:place + 3]))
        layer.set_modules_to_backward_prefetch(list(reversed(model.layers[max(place - 2, 0):place])))
    commpool.fsdp(model, pool)
    said = [stock, train(model), commpool.all_gather_ring(model).buffers]
    return [*said, end(pool, model)]


def gathered_by_hand(group):
    """Gathers on the legacy default stream before the first step, where NCCL has no copy engines; then gathers too
    much."""
    pool, model = windowed(group)
    streams, policies, gather = [], [], getattr(dist, _beside._GATHER)

    def noted(*tensors, group, **words):
        streams.append(torch.cuda.current_stream().cuda_stream)
        policies.append(group._get_backend(DEVICE).options.config.cta_policy)
        return gather(*tensors, group=group, **words)

    with unittest.mock.patch.object(dist, _beside._GATHER, noted):
        model.layers[0].unshard()
    said = [policies[0], len(streams), 0 in streams, model.layers[0].weight.sum().item()]
    model.layers[0].reshard()
    said.append(refusal(lambda: [layer.unshard(async_op=True) for layer in model.layers],
                        commpool.FailedPrecondition)[1])
    for layer in model.layers[:2]:
        layer.unshard()
        layer.reshard()
    said.append(train(model, 1) == train(sharded(), 1))
    return [*said, end(pool, model)]


def checkpointed_whole(group):
    """Backward first repeats the whole forward; then every module stays gathered."""
    pool, model = windowed(group)
    x = torch.ones(WIDTH, device=DEVICE, requires_grad=True)
    _, said = refusal(lambda: checkpoint(model, x, use_reentrant=False).sum().backward(), commpool.FailedPrecondition)
    pool.abandon(group)  # torch keeps what the failed step has gathered
    commpool.fsdp_release(model)
    pool.destroy()
    return said


def refused(group):
    symmetric, plain = commpool.Pool(symmetric_across=group), commpool.Pool("plain", device=RANK)
    said = [refusal(lambda: commpool.fsdp(model, pool, **words)) for model, pool, words in [
        (Scales([WIDTH]), symmetric, {}), (sharded(), plain, {}), (sharded((WIDTH, WIDTH * (1 + RANK))), symmetric, {}),
        (sharded(), symmetric, {"buffers": 2 + RANK}), (sharded(), symmetric, {"buffers": 0}),
        (sharded(), symmetric, {"buffers": 2 - 3 * RANK})]]
    said.append(symmetric.stats().allocated_blocks.total)
    end(symmetric)
    return said


def changed(group):
    """A module outgrows the buffers, and another model's buffers went back."""
    pool, model = windowed(group)
    ring = commpool.all_gather_ring(model)
    said = [refusal(lambda: ring.take(2 * WIDTH, torch.float32), commpool.FailedPrecondition)[1]]
    commpool.fsdp_release(model)
    said += [refusal(call, commpool.FailedPrecondition)[1]
             for call in (lambda: ring.take(WIDTH, torch.float32), lambda: commpool.fsdp_release(model))]
    said.append(train(model, 1) == train(sharded(), 1))  # the same as torch's own
    return [*said, end(pool)]


def sharded_later(group):
    """A new layer is sharded after some steps. Its step is refused; a model that is wrapped again goes on."""
    pool, model = windowed(group)
    said = [train(model, 1) == train(sharded(), 1)]
    model.layers.append(fully_shard(Scale(WIDTH)))
    said.append(refusal(lambda: model(torch.ones(WIDTH, device=DEVICE)), commpool.FailedPrecondition)[1])
    commpool.fsdp_release(model)
    model(torch.ones(WIDTH, device=DEVICE)).sum().backward()  # torch's own, which nobody watches
    commpool.fsdp(model, pool)
    model(torch.ones(WIDTH, device=DEVICE)).sum().backward()
    return [*said, commpool.all_gather_ring(model).taken, end(pool, model)]


def abandoned(group):
    """After a loss, the pool also abandons the communicator that was made beside the group's."""
    pool, model = windowed(group)
    beside, ring = _beside.with_copy_engines(group, pool), commpool.all_gather_ring(model)
    tensor = ring.take(WIDTH, torch.float32)
    said = [pool.window_of(tensor, over).handle != 0 for over in (group, beside)]
    pool.abandon(group)
    said += [refusal(lambda: pool.window_of(tensor, over))[0] for over in (group, beside)]
    del tensor
    commpool.fsdp_release(model)
    pool.destroy()
    return said


def without_copy_engines(_group):
    """A torch whose options have no policy: kernels gather, which is reported and counted."""
    with warnings.catch_warnings(record=True) as said, unittest.mock.patch.object(dist, "ProcessGroupNCCL") as backend:
        backend.Options.return_value.config = object()
        warnings.simplefilter("always")
        for _ in range(2):
            _beside._copy_engines()
    return [commpool.fallbacks(), [str(warning.message) for warning in said]]


def reshards_to_fewer(group):
    """Between forward and backward, halves of a layer stay gathered: two groups gather it."""
    stock = train(sharded(reshard_after_forward=2))
    pool, model = commpool.Pool("training", symmetric_across=group), sharded(reshard_after_forward=2)
    commpool.fsdp(model, pool)
    return [stock, train(model), commpool.all_gather_ring(model).taken, end(pool, model)]


run_cases([reshards_to_fewer] if "four" in sys.argv else [
    trains_as_stock, reduces_in_windows, prefetches_further, gathered_by_hand, refused, changed, sharded_later,
    checkpointed_whole, abandoned, without_copy_engines])
leave()
