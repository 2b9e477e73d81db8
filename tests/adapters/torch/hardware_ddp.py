"""DDP of GPT-2 small and medium with its buckets in windows, beside DDP as it is, with its bucket size and with ours.

usage: hardware_ddp.py [--record FILE] [--tiny]
"""

import sys

import torch
import torch.distributed as dist

import commpool.torch as commpool

from hardware_group import advice, compare, end, nccl_kernels, start_ranks, tiny
from hardware_measure import record
from hardware_models import Gpt2

MODELS = {"GPT-2 small": {"layers": 12, "width": 768, "heads": 12}, "GPT-2 medium": {}}
ROUNDS, STEPS, WARM = 15, 4, 6
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


def all_reduce_us(of_kernels):
    return sum(us for name, us in (of_kernels or {}).items() if "AllReduce" in name)


def one_model(name, words, device):
    pool, bucket = commpool.Pool("ddp", symmetric_across=dist.group.WORLD), commpool.advise().bucket_bytes
    plain = torch.nn.parallel.DistributedDataParallel
    ours = "windows"
    trainings = {
        "stock": Training(words, lambda net: plain(net, device_ids=[device.index])),
        "stock, our bucket": Training(words, lambda net: plain(net, device_ids=[device.index],
                                                               gradient_as_bucket_view=True,
                                                               bucket_cap_mb=bucket / MIB)),
        ours: Training(words, lambda net: commpool.ddp(net, pool, device_ids=[device.index]))}
    losses = {who: [training.step().item() for _ in range(WARM)] for who, training in trainings.items()}
    apart = max(abs(one - other) / abs(other) for one, other in zip(losses[ours], losses["stock"]))
    found = compare(f"DDP, {name}", {who: training.step for who, training in trainings.items()},
                    [(ours, "stock", 1.005), (ours, "stock, our bucket", 1.005)], 5 if tiny() else ROUNDS,
                    1 if tiny() else STEPS)
    kernels = {who: nccl_kernels(training.step) for who, training in trainings.items()}
    us = {who: all_reduce_us(of) for who, of in kernels.items()}
    if dist.get_rank() == 0:
        print(f"{name}: buckets of {bucket / MIB:g} MiB; losses apart by {apart:.2e} at most", flush=True)
        for who, of in kernels.items():
            print(f"  {who}: all-reduce kernels {us[who]:.0f} us a step: {of}", flush=True)
        if us["stock, our bucket"]:
            shorter = us[ours] / us["stock, our bucket"]
            print(f"  collective time, ours / stock with our bucket: {shorter:.3f}, goal 0.9", flush=True)
    held = pool.stats().allocated_bytes
    del trainings
    end(pool)
    torch.cuda.empty_cache()
    return {**found, "bucket_mib": bucket / MIB, "losses_apart": apart, "kernels_us": kernels, "all_reduce_us": us,
            "pool_mib": {"now": held.current >> 20, "peak": held.peak >> 20}}


def rank(device):
    found = advice()
    if dist.get_rank() == 0:
        print(found, flush=True)
    results = {"advice": [list(row) for row in found.rows]}
    for name, words in list(MODELS.items())[:1 if tiny() else None]:
        results[name] = one_model(name, words, device)
    if dist.get_rank() == 0:
        record("tests/adapters/torch/hardware_ddp.py", {"ranks": dist.get_world_size(), **results})


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 240))
