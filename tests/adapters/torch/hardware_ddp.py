"""DDP of GPT-2 small and medium with its buckets in windows, beside DDP as it is, with its bucket size and with ours.

usage: hardware_ddp.py [--record FILE] [--tiny] [--bucket MIB]
  --bucket  the size of ours, in place of the one that advise finds
"""

import os
import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import (advice, all_reduces_without_waiting, compare, end, graph_of, nccl_kernels, start_ranks,
                            tiny)
from hardware_measure import record
from hardware_models import Gpt2

MODELS = {"GPT-2 small": {"layers": 12, "width": 768, "heads": 12}, "GPT-2 medium": {}}
ROUNDS, STEPS, WARM, REPLAYS = 40, 4, 6, 10
STOCK, OURS = "stock, our bucket", "windows"
MIB = 1 << 20


class TinyModel(torch.nn.Module):
    """Of operations that the emulator has."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.full((1 << 16,), 1.5) for _ in range(4))

    def batch(self, _step):
        return torch.full((1 << 16,), 1.0, device="cuda")

    def loss(self, x):
        for weight in self.weights:
            x = x * weight
        return x.sum()

    forward = loss


class Loss(torch.nn.Module):
    """The model with its loss: DDP wraps what forward() is."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        return self.model.loss(batch)


class Training:
    def __init__(self, words, wrap):
        torch.manual_seed(1)
        with torch.device("cpu" if tiny() else "cuda"):
            self.model = (TinyModel() if tiny() else Gpt2(**words)).cuda()
        self.net = wrap(Loss(self.model))
        self.optimizer = (torch.optim.SGD(self.net.parameters(), lr=1e-3, foreach=False) if tiny() else
                          torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True))
        torch.manual_seed(5 + dist.get_rank())
        self.batch = self.model.batch(0)

    def step(self):
        loss = self.net(self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def buckets_of(net):
    """Elements of each gradient bucket, in the order in which they are reduced."""
    return [bucket.buffer().numel() for bucket in net.reducer._get_zeros_like_grad_buckets()]


def replayed(name, sizes, pool, device):
    """The buckets' all-reduces alone, back to back in a graph, so that the ranks stay together: plain and in windows.

    NCCL_GRAPH_REGISTER is 0, or plain buffers would be registered in a graph, which they are not in a step.
    """
    pool.reserve(sum(4 * size + 512 for size in sizes))
    plain = [torch.zeros(size, device=device) for size in sizes]
    with commpool.use_pool(pool):
        in_windows = [torch.zeros(size, device=device) for size in sizes]

    def all_of(tensors):
        for tensor in tensors:
            dist.all_reduce(tensor)

    ways = {STOCK: lambda: all_of(plain), OURS: lambda: all_of(in_windows)}
    graphs = {who: graph_of(work)[0] for who, work in ways.items()}
    found = compare(f"all-reduces of the {len(sizes)} buckets, {name}", {who: of.replay for who, of in graphs.items()},
                    [(OURS, STOCK, 0.9)], 5 if tiny() else ROUNDS, 1 if tiny() else REPLAYS)
    found["kernels_us"] = {who: nccl_kernels(of.replay) for who, of in graphs.items()}
    return found


def in_steps(trainings):
    """The all-reduces of steps, without what ranks wait for each other in them."""
    found = {who: all_reduces_without_waiting(training.step) for who, training in trainings.items()}
    if dist.get_rank() == 0:
        for who, of in found.items():
            print(f"  {who}: all-reduces of a step, without waiting: {of}", flush=True)
        if found[OURS] and found[STOCK]:
            ours, stock = (sum(kernel["us"] for kernel in found[who].values()) for who in (OURS, STOCK))
            found["windows / stock, our bucket"] = ours / stock
            print(f"  collective time in steps, {OURS} / {STOCK}: {ours / stock:.3f}, goal 0.9", flush=True)
    return found


def bucket_bytes():
    return int(sys.argv[sys.argv.index("--bucket") + 1]) * MIB if "--bucket" in sys.argv else (
        commpool.advise().bucket_bytes)


def one_model(name, words, device):
    pool, bucket = commpool.Pool("ddp", symmetric_across=dist.group.WORLD), bucket_bytes()
    plain = torch.nn.parallel.DistributedDataParallel
    trainings = {
        "stock": Training(words, lambda net: plain(net, device_ids=[device.index])),
        STOCK: Training(words, lambda net: plain(net, device_ids=[device.index], gradient_as_bucket_view=True,
                                                 bucket_cap_mb=bucket / MIB)),
        OURS: Training(words, lambda net: commpool.ddp(net, pool, bucket=bucket, device_ids=[device.index]))}
    losses = {who: [training.step().item() for _ in range(WARM)] for who, training in trainings.items()}
    apart = max(abs(one - other) / abs(other) for one, other in zip(losses[OURS], losses["stock"]))
    if dist.get_rank() == 0:
        print(f"{name}: buckets of {bucket / MIB:g} MiB; losses apart by {apart:.2e} at most", flush=True)
    found = compare(f"DDP, {name}", {who: training.step for who, training in trainings.items()},
                    [(OURS, "stock", 1.005), (OURS, STOCK, 1.005)], 5 if tiny() else ROUNDS, 1 if tiny() else STEPS)
    held, of_steps = pool.stats().allocated_bytes, in_steps(trainings)
    net = trainings[OURS].net
    sizes = buckets_of(net)
    del trainings
    commpool.ddp_release(net)
    del net
    torch.cuda.empty_cache()
    replays = replayed(name, sizes, pool, device)
    end(pool)
    return {**found, "bucket_mib": bucket / MIB, "losses_apart": apart, "all_reduces_in_steps": of_steps,
            "all_reduces_replayed": replays, "buckets_mib": [round(4 * size / MIB, 2) for size in sizes],
            "pool_mib": {"now": held.current >> 20, "peak": held.peak >> 20}}


def rank(device):
    found = advice()
    if dist.get_rank() == 0:
        print(found, flush=True)
    results = {"advice": [list(row) for row in found.rows]}
    for name, words in list(MODELS.items())[:1 if tiny() else None]:
        results[name] = one_model(name, words, device)
    if dist.get_rank() == 0:
        asked = " --bucket %d" % (bucket_bytes() // MIB) if "--bucket" in sys.argv else ""
        record("tests/adapters/torch/hardware_ddp.py" + asked, {"ranks": dist.get_world_size(), **results})


if __name__ == "__main__":
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
    sys.exit(start_ranks(rank, 240))
