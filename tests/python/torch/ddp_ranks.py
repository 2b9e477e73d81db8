"""What each rank of ddp_test does, case by case; rank 0 prints what all said, a line of JSON a case."""

import gc
import unittest.mock
import warnings

from nccl_log import LOG, all_reduces_of

import torch
import torch.distributed as dist

from routed import commpool, filled_in, pool_of

from commpool.torch import _advice, _advise, _group
from commpool.torch._advice import Advice, Row

from rank_cases import DEVICE, RANK, Scale, Scales, end, leave, losses_of, refusal, run_cases

WIDTH, LAYERS = 1 << 16, 6


def model_of(layers=LAYERS, unused=0):
    return Scales([WIDTH] * layers, unused)


def train(net, pool=None, steps=4):
    """Returns the losses, a weight of each layer, and the steps in which all gradients were in the pool."""
    inside = []

    def look():
        gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        inside.append(pool is not None and all(pool_of(gradient) == pool.handle for gradient in gradients))

    losses = losses_of(net, torch.full((WIDTH,), (1.0 + RANK) / 64, device=DEVICE), steps, look)
    return losses, [layer.weight[0].item() for layer in net.module.layers], inside


def stock(model, **words):
    return train(torch.nn.parallel.DistributedDataParallel(model, device_ids=[RANK], **words))[:2]


def trains(group, **words):
    unused = int(words.get("find_unused_parameters", False))
    pool = commpool.Pool("gradients", symmetric_across=group)
    net = commpool.ddp(model_of(unused=unused), pool, bucket="512KiB", blocks=0, device_ids=[RANK], **words)
    ours, moved = train(net, pool), net._moved
    of_stock = stock(model_of(unused=unused), bucket_cap_mb=0.5, **words)
    peak = pool.stats().allocated_bytes.peak
    return [of_stock, ours[:2], ours[2], moved, peak, end(pool, net)]


def trains_as_stock(group):
    return {"by default": trains(group), "with a static graph": trains(group, static_graph=True),
            "with unused parameters": trains(group, find_unused_parameters=True),
            "with gradients of their own": trains(group, gradient_as_bucket_view=False)}


def advised(group):
    """The first call measures. All later ones return its result, and so do buckets and ranges of sizes."""
    sizes = [32 << 10, 1 << 20, 4 << 20]
    advice, more_blocks = commpool.advise(group, sizes=sizes), commpool.advise(group, sizes=sizes, blocks=16)
    with unittest.mock.patch("commpool.torch._advise._measured", side_effect=AssertionError):
        again = commpool.advise()
        pool = commpool.Pool(symmetric_across=group)
        net = commpool.ddp(model_of(1), pool)
        windows = commpool.tp(pool)
    best = _advice.best(list(net.parameters()), [advice, more_blocks])
    said = [advice.rows, advice is again, str(more_blocks), advice.sizes, best == net.buckets,
            net.bucket_bytes_cap == best.nbytes, windows.sizes]
    return [*said, end(pool, net)]


def measured_on_the_emulator(_group):
    """The emulator's times mean nothing: what is measured there, and what is said before."""
    other, happened = dist.new_group(device_id=DEVICE), []
    measured = _advise._measured

    def measure(*arguments):
        happened.append("measured")
        return measured(*arguments)

    with unittest.mock.patch.object(_advise, "_measured", measure):
        with unittest.mock.patch.object(_advise.logger, "info", lambda text, *words: happened.append(text % words)):
            rows = commpool.advise(other).rows
    return [[row.nbytes for row in rows], *happened[:2]]


def larger_than_windows_serve(group):
    """Windows gain up to 600 KiB, over a communicator with more blocks. A parameter of 1 MiB stays in torch's
    memory."""
    rows = (Row(64 << 10, 20, 10), Row(512 << 10, 30, 20), Row(1 << 20, 40, 50))
    advices = {0: Advice(2, rows[2:]), 16: Advice(2, rows, 16)}

    def model():
        return Scales([WIDTH] * LAYERS + [4 * WIDTH])

    pool = commpool.Pool("gradients", symmetric_across=group)
    with unittest.mock.patch("commpool.torch._ddp.advise", lambda _, blocks=0: advices[blocks]):
        with unittest.mock.patch("commpool.torch._ddp.logger.info") as info:
            net = commpool.ddp(model(), pool, bucket_cap_mb=0.5, device_ids=[RANK])
    over = net.process_group
    ours, of_stock = train(net, pool), stock(model(), bucket_cap_mb=0.5)
    config = over._get_backend(DEVICE).options.config
    said = [of_stock, ours[:2], net.buckets[:3], net.placed(), [config.min_ctas, config.max_ctas], over is group,
            pool.stats().allocated_bytes.current, info.call_args.args[0] % info.call_args.args[1:],
            all_reduces_of(lambda: train(net, pool, 1))]
    return [*said, end(pool, net)]


def of_what_is_given(group):
    """The program gives the size of a bucket or the number of blocks. The best value is chosen for the other."""
    slower, faster = (tuple(Row(nbytes, 30, window) for nbytes in (64 << 10, 1 << 20)) for window in (25, 10))
    pool, said = commpool.Pool("gradients", symmetric_across=group), []
    for rows in ({0: slower, 16: faster}, {0: faster, 16: slower}):
        for words in ({"bucket": "512KiB"}, {"blocks": 16}):
            with unittest.mock.patch("commpool.torch._ddp.advise",
                                     lambda _, blocks, rows=rows: Advice(2, rows[blocks], blocks)):
                net = commpool.ddp(model_of(2), pool, device_ids=[RANK], **words)
            said.append([net.buckets[:3], net.process_group is group, all(train(net, pool, 2)[2])])
            commpool.ddp_release(net)
            del net
            gc.collect()
    return [said, end(pool)]


def refused(group):
    other = dist.new_group(device_id=DEVICE)
    symmetric, plain, said = commpool.Pool(symmetric_across=group), commpool.Pool("plain"), []
    for layers, pool, words in [(LAYERS, plain, {}), (LAYERS, symmetric, {"lazy_bucket_allocation": True}),
                                (LAYERS + RANK, symmetric, {}), (LAYERS, symmetric, {"process_group": other}),
                                (LAYERS, symmetric, {"bucket": f"{1 + RANK}MiB"})]:
        words = {"bucket": "1MiB", "blocks": 0, **words}
        said.append(refusal(lambda: commpool.ddp(model_of(layers), pool, **words)))
    for call in (lambda: commpool.ddp(model_of(), symmetric), lambda: commpool.tp(symmetric),
                 lambda: commpool.advise(other), lambda: commpool.Pool(symmetric_across=group)):
        with unittest.mock.patch.object(_group, "backend_of", return_value=unittest.mock.Mock(comm_ptr=0)):
            said.append(refusal(call))
    said.append(refusal(lambda: commpool.tp(symmetric, sizes=(1024, 4096 * (1 + RANK)))))
    alone = (lambda: commpool.ddp(model_of(), symmetric, bucket="1MiB", blocks=-RANK),
             lambda: commpool.ddp(model_of(), plain if RANK else symmetric, bucket="1MiB", blocks=0),
             lambda: commpool.tp(symmetric, sizes="much" if RANK else None),
             lambda: commpool.Pool(symmetric_across=group, agreement="store", deadline_ms="x" if RANK else 5000),
             lambda: commpool.Pool(symmetric_across=group, **({"deadlinems": 1} if RANK else {})))
    return [said, [refusal(call, Exception) for call in alone], end(symmetric)]


def changed(group):
    pool, said = commpool.Pool(symmetric_across=group), []
    net = commpool.ddp(model_of(2), pool, bucket="1MiB", blocks=0)
    train(net, pool, 2)

    def freeze():
        net.module.layers[1].weight.requires_grad_(False)

    def grow():
        net.module.layers[1].weight.requires_grad_(True)
        net.module.layers.append(Scale(WIDTH))

    def shrink():
        del net.module.layers[2], net.module.layers[1]

    for change in (freeze, grow, shrink):
        change()
        said.append(refusal(lambda: net(torch.ones(WIDTH, device=DEVICE)), commpool.FailedPrecondition)[1])
    commpool.ddp_release(net)
    net = commpool.ddp(net.module, pool, bucket="1MiB", blocks=0)
    said.append(train(net, pool, 2)[2])
    return [*said, end(pool, net)]


def released(group):
    """Gradients are alive, and nobody has waited for the last collectives."""
    pool = commpool.Pool(symmetric_across=group)
    net = commpool.ddp(model_of(2), pool, bucket="256KiB", blocks=0, device_ids=[RANK])
    train(net, pool, 2)
    net(torch.ones(WIDTH, device=DEVICE)).sum().backward()
    joined = refusal(net.join, commpool.NotSupported)[1]
    model, before = net.module, [parameter.grad[0].item() for parameter in net.parameters()]
    dist.all_reduce(filled_in(pool, 1.0, WIDTH, torch.float32), async_op=True)  # torch's process group still has it
    torch.cuda.synchronize()
    commpool.ddp_release(net)
    said = [pool.stats().allocated_blocks.current,
            [parameter.grad[0].item() for parameter in model.parameters()] == before]
    said += [refusal(call, commpool.FailedPrecondition)[1]
             for call in (lambda: net(torch.ones(WIDTH, device=DEVICE)), lambda: commpool.ddp_release(net),
                          lambda: commpool.ddp_release(model))]
    return [*said, joined, end(pool)]


def without_more_blocks(group):
    """NCCL refuses such a communicator: the group's own is used."""
    pool = commpool.Pool(symmetric_across=group)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with unittest.mock.patch.object(dist, "new_group", side_effect=dist.DistBackendError("invalid config")):
            net = commpool.ddp(model_of(2), pool, bucket="256KiB", blocks=24)
    said = [[str(warning.message) for warning in warned], commpool.fallbacks(), net.process_group is group,
            train(net, pool, 2)[2]]
    return [*said, end(pool, net)]


def after_a_loss(group):
    """After the loss of a rank nobody waits for it, and the same model goes on over another group."""
    lost = dist.new_group(device_id=DEVICE)
    pool = commpool.Pool(symmetric_across=lost)
    net = commpool.ddp(model_of(2), pool, bucket="256KiB", blocks=16, process_group=lost)
    said, stands_beside = [train(net, pool, 2)[2]], net.process_group
    pool.abandon(lost)
    for aborted in (lost, stands_beside):
        aborted._get_backend(DEVICE).abort()
    del stands_beside, aborted
    model = commpool.ddp_release(net, alive=False)
    gc.collect()
    pool.rehome(group)
    net = commpool.ddp(model, pool, bucket="256KiB", blocks=16)
    said.append(train(net, pool, 2)[2])
    return [*said, end(pool, net)]


run_cases([trains_as_stock, advised, measured_on_the_emulator, larger_than_windows_serve, of_what_is_given, refused,
           changed, released, without_more_blocks, after_a_loss])
leave()
LOG.unlink(missing_ok=True)
