"""DDP of GPT-2 medium and a compiled Llama of 1B with its buckets in windows, beside DDP as it is, with its bucket size
and with ours.

usage: hardware_ddp.py [MODEL] [--record FILE] [--tiny] [--bucket MIB] [--blocks N]      (default: both models)
  MODEL     gpt2 or llama
  --bucket  the size of ours, in place of the one that is found best
  --blocks  with it: all buckets in windows, over kernels of at least so many blocks
"""

import os
import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import (advice, all_reduces_without_waiting, compare, compare_narrowly, end, graph_of,
                            nccl_kernels, start_ranks, tiny)
from hardware_llama import Llama
from hardware_measure import record
from hardware_models import Gpt2

MODELS = {"llama": Llama} if tiny() else {"gpt2": Gpt2, "llama": Llama}
ROUNDS, WARM, REPLAYS = 40, 6, 10
STEPS, SECONDS, NARROW = 3, 25, 0.004  # in turn, until the ratio of two is known so well, or for so long
STOCK, OURS = "stock, our bucket", "windows"
MIB = 1 << 20


class Loss(torch.nn.Module):
    """The model with its loss: DDP wraps what forward() is."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        return self.model.loss(batch)


class Training:
    def __init__(self, name, wrap):
        torch.manual_seed(1)
        with torch.device("cpu" if tiny() else "cuda"):
            self.model = MODELS[name]().cuda()
        self.net = wrap(Loss(self.model))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=not tiny())
        torch.manual_seed(5 + dist.get_rank())
        self.batch = self.model.batch(0)

    def step(self):
        loss = self.net(self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def buckets_of(net):
    """Like each gradient bucket, in the order in which they are reduced."""
    return [torch.zeros_like(bucket.buffer()) for bucket in net.reducer._get_zeros_like_grad_buckets()]


def replayed(name, plain, net, pool):
    """The all-reduces of all buckets, and of those in windows alone, back to back in a graph that keeps ranks together.

    NCCL_GRAPH_REGISTER is 0, or plain buffers would be registered in a graph, which they are not in a step.
    """
    windows, over = net.buckets.windows, net.process_group
    if windows is None:
        return None
    pool.reserve(sum(bucket.nbytes + 512 for bucket in plain))
    with commpool.use_pool(pool, sizes=windows):
        placed = [torch.zeros_like(bucket) for bucket in plain]
    inside = [place for place, tensor in enumerate(placed) if commpool.block_of(tensor) is not None]

    def all_of(tensors, group=None):
        return lambda: [dist.all_reduce(tensor, group=group) for tensor in tensors]

    found = {}
    for what, places in (("all buckets", range(len(plain))), ("those in windows", inside)):
        ways = {STOCK: all_of([plain[place] for place in places]),
                OURS: all_of([placed[place] for place in places], over)}
        graphs = {who: graph_of(work)[0] for who, work in ways.items()}
        found[what] = compare(f"all-reduces of {what}, {name}", {who: of.replay for who, of in graphs.items()},
                              [(OURS, STOCK, 0.9)], 5 if tiny() else ROUNDS, 1 if tiny() else REPLAYS)
        found[what]["kernels_us"] = {who: nccl_kernels(of.replay) for who, of in graphs.items()}
    return found


def in_steps(trainings):
    """The all-reduces of steps, without what ranks wait for each other in them."""
    found = {who: all_reduces_without_waiting(trainings[who].step) for who in (OURS, STOCK)}
    ours, stock = found[OURS], found[STOCK]
    if dist.get_rank() == 0 and ours and stock and len(ours) == len(stock):
        symmetric = [place for place, (kernel, _) in enumerate(ours) if "Symk" in kernel]
        for what, places in (("all buckets", range(len(ours))), ("symmetric kernels", symmetric)):
            us = [sum(of[place][1] for place in places) for of in (ours, stock)]
            if places:
                found[what] = us[0] / us[1]
                print(f"  collective time in steps, {what} ({len(places)}): {us[0]:.0f} / {us[1]:.0f} us = "
                      f"{found[what]:.3f}, goal 0.9", flush=True)
    return found


def asked_of_us():
    """What --bucket and --blocks say, as options of ddp."""
    said = {name: int(sys.argv[sys.argv.index("--" + name) + 1]) for name in ("bucket", "blocks")
            if "--" + name in sys.argv}
    if "blocks" in said:
        return {"bucket": said["bucket"] * MIB, "blocks": said["blocks"]}
    return {"bucket_cap_mb": said["bucket"]} if "bucket" in said else {}


def one_model(name, device):
    pool, plain = commpool.Pool("ddp", symmetric_across=dist.group.WORLD), torch.nn.parallel.DistributedDataParallel
    ours = Training(name, lambda net: commpool.ddp(net, pool, device_ids=[device.index], **asked_of_us()))
    chosen = ours.net.buckets
    trainings = {
        "stock": Training(name, lambda net: plain(net, device_ids=[device.index])),
        STOCK: Training(name, lambda net: plain(net, device_ids=[device.index], gradient_as_bucket_view=True,
                                                 bucket_cap_mb=chosen.nbytes / MIB)),
        OURS: ours}
    losses = {who: [training.step().item() for _ in range(WARM)] for who, training in trainings.items()}
    apart = max(abs(one - other) / abs(other) for one, other in zip(losses[OURS], losses["stock"]))
    placed = ours.net.placed()
    if dist.get_rank() == 0:
        print(f"{name}: {chosen}; {placed}; losses apart by {apart:.2e} at most", flush=True)
    steps = {who: training.step for who, training in trainings.items()}
    found = {to: compare_narrowly(f"DDP, {name}", steps, (OURS, to, 1.005), STEPS, 1 if tiny() else SECONDS, NARROW)
             for to in ("stock", STOCK)}
    held, of_steps = pool.stats().allocated_bytes, in_steps(trainings)
    net = ours.net
    buckets = buckets_of(net)
    del trainings, ours, steps
    replays = replayed(name, buckets, net, pool)
    commpool.ddp_release(net)
    del net
    torch.cuda.empty_cache()
    end(pool)
    return {**found, "chosen": chosen._asdict(), "placed": placed._asdict(), "losses_apart": apart,
            "all_reduces_in_steps": of_steps, "all_reduces_replayed": replays,
            "buckets_mib": [round(bucket.nbytes / MIB, 2) for bucket in buckets],
            "pool_mib": {"now": held.current >> 20, "peak": held.peak >> 20}}


def rank(device):
    advices = [advice(), advice(blocks=16)]
    if dist.get_rank() == 0:
        print(*advices, sep="\n", flush=True)
    results = {"advice": {str(of.blocks): [list(row) for row in of.rows] for of in advices}}
    for name in [name for name in MODELS if name in sys.argv] or MODELS:
        results[name] = one_model(name, device)
    if dist.get_rank() == 0:
        asked = "".join(f" {name}" for name in MODELS if name in sys.argv)
        asked += "".join(f" --{name} {sys.argv[sys.argv.index('--' + name) + 1]}" for name in ("bucket", "blocks")
                         if "--" + name in sys.argv)
        record("tests/torch/hardware_ddp.py" + asked, {"ranks": dist.get_world_size(), **results})


if __name__ == "__main__":
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
    sys.exit(start_ranks(rank, 280))
