"""Distributed programs that know nothing of commpool, for any number of ranks: parallel_ranks.py cuda|cpu CASE...

Rank 0 prints a line for each: its name and the last losses in hexadecimal. `--without MODULE:LINE` leaves out one
statement of PyTorch's (removed_waits.py).
"""

import os
import sys

import removed_waits

removed_waits.leave_out(sys.argv)

# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

KIND = sys.argv[1]
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if KIND == "cuda" else torch.device("cpu")
WIDTH, STEPS = 32, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def blocks(count=3):
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(count))).to(DEVICE)


def batches(rank=RANK):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(8, WIDTH, generator=generator).to(DEVICE) for _ in range(STEPS)]


def trained(model, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in batches():
        loss = model(batch).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses


def ddp():
    return trained(nn.parallel.DistributedDataParallel(blocks(), bucket_cap_mb=0.01))


def zero_redundancy():
    model = nn.parallel.DistributedDataParallel(blocks())
    return trained(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2))


def sharded(model, **options):
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fsdp():
    model = sharded(blocks())
    model.set_requires_gradient_sync(False)
    model(batches()[0]).square().mean().backward()
    model.set_requires_gradient_sync(True)
    return trained(model)


def fsdp_ahead():
    model = sharded(blocks(4), reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float64))
    for before, block in zip(model, list(model)[1:]):
        before.set_modules_to_forward_prefetch([block])
        block.set_modules_to_backward_prefetch([before])
    return trained(model)


def hsdp():
    return trained(sharded(blocks(), mesh=init_device_mesh(KIND, (2, RANKS // 2), mesh_dim_names=("copies", "shards"))))


def tensor_parallel():
    mesh, model = init_device_mesh(KIND, (RANKS,)), blocks()
    for block in model:
        parallelize_module(block, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    losses = []
    for batch in batches(0):
        loss = model(batch).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return losses


def through_stages(schedule, stages):
    parts = [pipelining.PipelineStage(blocks(1), RANK + RANKS * number, RANKS * stages, DEVICE)
             for number in range(stages)]
    run = schedule(parts if stages > 1 else parts[0], 4, loss_fn=lambda out, target: (out - target).square().mean())
    last = torch.zeros(4, device=DEVICE)
    for batch in batches(0):
        losses = []
        run.step(*([batch] if RANK == 0 else []), **({"target": batch, "losses": losses} if RANK == RANKS - 1 else {}))
        if losses:
            last = torch.stack([loss.detach() for loss in losses])
    dist.broadcast(last, RANKS - 1)
    return list(last)


def pipeline():
    return through_stages(pipelining.Schedule1F1B, 1)


def zero_bubble():
    return through_stages(pipelining.ScheduleInterleavedZeroBubble, 2)


CASES = [ddp, zero_redundancy, fsdp, fsdp_ahead, hsdp, tensor_parallel, pipeline, zero_bubble]


def main():
    if KIND == "cuda":
        torch.cuda.set_device(DEVICE)
        dist.init_process_group("nccl", device_id=DEVICE)
    else:
        dist.init_process_group("gloo")
    for case in [case for case in CASES if case.__name__ in sys.argv] or CASES:
        losses = case()
        if RANK == 0:
            print(case.__name__, *(loss.item().hex() for loss in losses), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
