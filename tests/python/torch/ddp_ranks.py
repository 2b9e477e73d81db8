"""What each rank of ddp_test does, case by case; rank 0 prints what all said, a line of JSON a case."""

import gc
import unittest.mock
import warnings

from nccl_log import LOG, all_reduces_of

import torch
import torch.distributed as dist

from routed import commpool

from commpool.torch import _advice, _advise, _group
from commpool.torch._advice import Advice, Row

from rank_cases import DEVICE, RANK, end, leave, run_cases

WIDTH, LAYERS = 1 << 16, 6
BYTES = 4 * WIDTH * LAYERS


class Scale(torch.nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), 2.0))

    def forward(self, x):
        return x * self.weight[:WIDTH]


class Model(torch.nn.Module):
    """Layers in a row; forward leaves `unused` of them out."""

    def __init__(self, layers=LAYERS, unused=0):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scale() for _ in range(layers))
        self.used = layers - unused

    def forward(self, x):
        for layer in self.layers[:self.used]:
            x = layer(x)
        return x


def train(net, pool=None, steps=4):
    """Trains with SGD. Returns the losses, a weight of each layer, and the steps in which all gradients were in the
    pool."""
    optimizer, losses, inside = torch.optim.SGD(net.parameters(), lr=1 / 1024, foreach=False), [], []
    for _ in range(steps):
        loss = net(torch.full((WIDTH,), (1.0 + RANK) / 64, device=DEVICE)).sum()
        loss.backward()
        gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        blocks = [commpool.block_of(gradient) for gradient in gradients]
        inside.append(all(block is not None and pool is not None and block.pool == pool.handle for block in blocks))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [layer.weight[0].item() for layer in net.module.layers], inside


def stock(model, **words):
    return train(torch.nn.parallel.DistributedDataParallel(model, device_ids=[RANK], **words))[:2]


def trains(group, **words):
    unused = int(words.get("find_unused_parameters", False))
    pool = commpool.Pool("gradients", symmetric_across=group)
    net = commpool.ddp(Model(unused=unused).to(DEVICE), pool, bucket="512KiB", blocks=0, device_ids=[RANK], **words)
    ours, moved = train(net, pool), net._moved
    of_stock = stock(Model(unused=unused).to(DEVICE), bucket_cap_mb=0.5, **words)
    pool.verify()
    peak = pool.stats().allocated_bytes.peak
    commpool.ddp_release(net)
    return [list(of_stock), list(ours[:2]), ours[2], moved, peak, end(pool)]


def by_default(group):
    return trains(group)


def with_static_graph(group):
    return trains(group, static_graph=True)


def with_unused_parameters(group):
    return trains(group, find_unused_parameters=True)


def with_gradients_of_their_own(group):
    return trains(group, gradient_as_bucket_view=False)


def advised(group):
    """The first call measures. All later ones return its result, and so do buckets and ranges of sizes."""
    sizes = [32 << 10, 1 << 20, 4 << 20]
    advice, more_blocks = commpool.advise(group, sizes=sizes), commpool.advise(group, sizes=sizes, blocks=16)
    with unittest.mock.patch("commpool.torch._advise._measured", side_effect=AssertionError):
        again = commpool.advise()
        pool = commpool.Pool(symmetric_across=group)
        net = commpool.ddp(Model(1).to(DEVICE), pool)
        windows = commpool.tp(pool)
    best = _advice.best(list(net.parameters()), [advice, more_blocks])
    said = [[list(row) for row in advice.rows], advice is again, str(more_blocks), list(advice.sizes or ()),
            best == net.buckets, net.bucket_bytes_cap == best.nbytes, list(windows.sizes or ())]
    commpool.ddp_release(net)
    return [*said, end(pool)]


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
        made = Model()
        made.layers.append(Scale(4 * WIDTH))
        made.used += 1
        return made.to(DEVICE)

    pool = commpool.Pool("gradients", symmetric_across=group)
    with unittest.mock.patch("commpool.torch._ddp.advise", lambda _, blocks=0: advices[blocks]):
        with unittest.mock.patch("commpool.torch._ddp.logger.info") as info:
            net = commpool.ddp(model(), pool, bucket_cap_mb=0.5, device_ids=[RANK])
    over = net.process_group
    ours, of_stock = train(net, pool), stock(model(), bucket_cap_mb=0.5)
    said = [list(of_stock), list(ours[:2]), list(net.buckets[:3]), list(net.placed()),
            [over._get_backend(DEVICE).options.config.min_ctas, over._get_backend(DEVICE).options.config.max_ctas],
            over is group,
            pool.stats().allocated_bytes.current, info.call_args.args[0] % info.call_args.args[1:]]
    said.append(all_reduces_of(lambda: train(net, pool, 1)))
    commpool.ddp_release(net)
    return [*said, end(pool)]


def of_what_is_given(group):
    """The program gives the size of a bucket or the number of blocks. The best value is chosen for the other."""
    slower, faster = (tuple(Row(nbytes, 30, window) for nbytes in (64 << 10, 1 << 20)) for window in (25, 10))
    pool, said = commpool.Pool("gradients", symmetric_across=group), []
    for rows in ({0: slower, 16: faster}, {0: faster, 16: slower}):
        for words in ({"bucket": "512KiB"}, {"blocks": 16}):
            with unittest.mock.patch("commpool.torch._ddp.advise",
                                     lambda _, blocks, rows=rows: Advice(2, rows[blocks], blocks)):
                net = commpool.ddp(Model(2).to(DEVICE), pool, device_ids=[RANK], **words)
            said.append([list(net.buckets[:3]), net.process_group is group, all(train(net, pool, 2)[2])])
            commpool.ddp_release(net)
            del net
            gc.collect()
    return [said, end(pool)]


def refused(group):
    other = dist.new_group(device_id=DEVICE)
    symmetric, plain = commpool.Pool(symmetric_across=group), commpool.Pool("plain")
    said = []
    for model, pool, words in [(Model(), plain, {}), (Model(), symmetric, {"lazy_bucket_allocation": True}),
                               (Model(LAYERS + RANK), symmetric, {}), (Model(), symmetric, {"process_group": other}),
                               (Model(), symmetric, {"bucket": f"{1 + RANK}MiB"})]:
        try:
            commpool.ddp(model.to(DEVICE), pool, **{"bucket": "1MiB", "blocks": 0, **words})
        except commpool.CommpoolError as error:
            said.append([type(error).__name__, str(error)])
    for call in (lambda: commpool.ddp(Model().to(DEVICE), symmetric), lambda: commpool.tp(symmetric),
                 lambda: commpool.advise(other), lambda: commpool.Pool(symmetric_across=group)):
        with unittest.mock.patch.object(_group, "backend_of", return_value=unittest.mock.Mock(comm_ptr=0)):
            try:
                call()
            except commpool.CommpoolError as error:
                said.append([type(error).__name__, str(error)])
    try:
        commpool.tp(symmetric, sizes=(1024, 4096 * (1 + RANK)))
    except commpool.CommpoolError as error:
        said.append([type(error).__name__, str(error)])
    alone = []
    for call in (lambda: commpool.ddp(Model().to(DEVICE), symmetric, bucket="1MiB", blocks=-RANK),
                 lambda: commpool.ddp(Model().to(DEVICE), plain if RANK else symmetric, bucket="1MiB", blocks=0),
                 lambda: commpool.tp(symmetric, sizes="much" if RANK else None),
                 lambda: commpool.Pool(symmetric_across=group, agreement="store", deadline_ms="x" if RANK else 5000),
                 lambda: commpool.Pool(symmetric_across=group, deadlinems=RANK) if RANK else
                 commpool.Pool(symmetric_across=group)):
        try:
            call()
        except Exception as error:
            alone.append([type(error).__name__, str(error)])
    return [said, alone, end(symmetric)]


def changed(group):
    pool, said = commpool.Pool(symmetric_across=group), []
    net = commpool.ddp(Model(2).to(DEVICE), pool, bucket="1MiB", blocks=0)
    train(net, pool, 2)

    def freeze():
        net.module.layers[1].weight.requires_grad_(False)

    def grow():
        net.module.layers[1].weight.requires_grad_(True)
        net.module.layers.append(Scale().to(DEVICE))

    def shrink():
        del net.module.layers[2], net.module.layers[1]

    for change in (freeze, grow, shrink):
        change()
        try:
            net(torch.ones(WIDTH, device=DEVICE))
        except commpool.FailedPrecondition as error:
            said.append(str(error))
    commpool.ddp_release(net)
    net = commpool.ddp(net.module, pool, bucket="1MiB", blocks=0)
    said.append(train(net, pool, 2)[2])
    commpool.ddp_release(net)
    return [*said, end(pool)]


def released(group):
    """Gradients are alive, and nobody has waited for the last collectives."""
    pool, said = commpool.Pool(symmetric_across=group), []
    net = commpool.ddp(Model(2).to(DEVICE), pool, bucket="256KiB", blocks=0, device_ids=[RANK])
    train(net, pool, 2)
    net(torch.ones(WIDTH, device=DEVICE)).sum().backward()
    model, before = net.module, [parameter.grad[0].item() for parameter in net.parameters()]
    with commpool.use_pool(pool):
        unawaited = torch.ones(WIDTH, device=DEVICE)
    dist.all_reduce(unawaited, async_op=True)
    del unawaited  # torch's process group still has it
    torch.cuda.synchronize()
    commpool.ddp_release(net)
    said.append(pool.stats().allocated_blocks.current)
    said.append([parameter.grad[0].item() for parameter in model.parameters()] == before)
    for call in (lambda: net(torch.ones(WIDTH, device=DEVICE)), lambda: commpool.ddp_release(net)):
        try:
            call()
        except commpool.FailedPrecondition as error:
            said.append(str(error))
    return [*said, end(pool)]


def without_more_blocks(group):
    """NCCL refuses such a communicator: the group's own is used."""
    pool = commpool.Pool(symmetric_across=group)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with unittest.mock.patch.object(dist, "new_group", side_effect=dist.DistBackendError("invalid config")):
            net = commpool.ddp(Model(2).to(DEVICE), pool, bucket="256KiB", blocks=24)
    said = [[str(warning.message) for warning in warned], commpool.fallbacks(), net.process_group is group]
    said.append(train(net, pool, 2)[2])
    commpool.ddp_release(net)
    return [*said, end(pool)]


def after_a_loss(group):
    """After the loss of a rank nobody waits for it, and the same model goes on over another group."""
    lost = dist.new_group(device_id=DEVICE)
    pool = commpool.Pool(symmetric_across=lost)
    net = commpool.ddp(Model(2).to(DEVICE), pool, bucket="256KiB", blocks=16, process_group=lost)
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
    commpool.ddp_release(net)
    return [*said, end(pool)]


CASES = [by_default, with_static_graph, with_unused_parameters, with_gradients_of_their_own, advised,
         measured_on_the_emulator,
         larger_than_windows_serve, of_what_is_given, refused, changed, released,
         without_more_blocks, after_a_loss]


if __name__ == "__main__":
    run_cases(CASES)
    leave()
    LOG.unlink(missing_ok=True)
