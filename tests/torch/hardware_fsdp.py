"""FSDP2 of a compiled Llama of 1B with its all-gathers in windows by copy engines, beside FSDP2 as it is: steps,
memory, losses, kernels.

usage: hardware_fsdp.py [--record FILE] [--tiny] [--tokens N]
  --tokens  of a rank's batch, one of 4096, 8192 and 16384: this alone, and nothing but steps
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import commpool.torch as commpool

from hardware_group import compare_narrowly, end, everywhere, exposed_collectives, nccl_kernels, start_ranks, tiny
from hardware_llama import Llama
from hardware_measure import record

TOKENS = [64, 128] if tiny() else [4096, 8192, 16384]
EXPOSED, GOAL, GOAL_OF_FEW = 0.1, 0.965, 1.005  # of a step, in collectives beside which nothing runs: from there, GOAL
CHECKED = 10
NARROW = 0.004  # half an interval
CORES = 6  # of a rank's own
SECONDS, STEPS_A_TIME = 30, 3  # of steps, for each number of tokens


class Training:
    """A sharded model and its steps."""

    def __init__(self, pool=None, **words):
        torch.manual_seed(1)
        with torch.device("cpu" if tiny() else "cuda"):
            self.llama = Llama()
        self.model = self.llama.cuda().model
        for layer in self.llama.layers():
            fully_shard(layer)
        fully_shard(self.model)
        if pool is not None:
            commpool.fsdp(self.model, pool, **words)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, batch):
        loss = self.llama.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def batch(self, tokens):
        torch.manual_seed(10 + dist.get_rank())
        return self.llama.batch(0, tokens)

    def weights(self):
        """A digest of the last layer as this rank has it when it is gathered."""
        layer = self.llama.layers()[-1]
        layer.unshard()
        gathered = next(layer.parameters()).detach().view(torch.uint8).cpu().numpy().tobytes()
        layer.reshard()
        return hashlib.sha256(gathered).hexdigest()


def losses_and_weights(trainings, batch):
    """The same steps with each: how far losses are apart, and whether all ranks have equal weights."""
    losses = {name: [training.step(batch).item() for _ in range(CHECKED)] for name, training in trainings.items()}
    stock = losses["stock"]
    apart = {name: max(abs(one - other) / abs(other) for one, other in zip(of, stock)) for name, of in losses.items()}
    equal = {name: len(set(everywhere(training.weights()))) == 1 for name, training in trainings.items()}
    if dist.get_rank() == 0:
        print(f"losses, largest relative difference from stock's in {CHECKED} steps: {apart}", flush=True)
        print(f"ranks have equal weights: {equal}", flush=True)
    return {"losses_apart": apart, "ranks_equal": equal}


def peaks(trainings, batch, pool):
    """MiB of torch's allocator at most in a step, and what the pool holds."""
    found = {"pool_mib": pool.stats().reserved_bytes.current >> 20}
    for name, training in trainings.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        training.step(batch)
        torch.cuda.synchronize()
        found[name] = torch.cuda.max_memory_allocated() >> 20
    if dist.get_rank() == 0:
        print(f"most memory in a step, MiB of torch's own: {found}", flush=True)
    return found


def kernels(trainings, batch):
    found = {name: nccl_kernels(lambda training=training: training.step(batch))
             for name, training in trainings.items()}
    if dist.get_rank() == 0:
        for name, of in found.items():
            gathers = sum("AllGather" in kernel for kernel in of or {})
            print(f"{name}: {gathers} kinds of all-gather kernels; us a step: {of}", flush=True)
    return found


def allocations_of(step):
    """How many blocks a step asks torch for: the calls take of the host that many times what `replay` finds."""
    before = torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    step()
    return torch.cuda.memory_stats().get("allocation.all.allocated", 0) - before


def steps_with(tokens, trainings):
    batch = trainings["stock"].batch(tokens)
    steps = {name: (lambda training=training: training.step(batch)) for name, training in trainings.items()}
    steps["stock"]()  # compiles
    exposed = exposed_collectives(steps["stock"])
    allocations = {name: allocations_of(step) for name, step in steps.items()}
    found = compare_narrowly(f"FSDP2, {tokens} tokens", steps,
                             ("windows", "stock", GOAL if exposed and exposed >= EXPOSED else GOAL_OF_FEW),
                             STEPS_A_TIME, 1 if tiny() else SECONDS, NARROW)
    if dist.get_rank() == 0:
        print(f"  of a step without windows nothing but collectives: {exposed}; blocks that a step asks torch for: "
              f"{allocations}", flush=True)
    return {**found, "exposed": exposed, "allocations": allocations}


def finish(trainings, pool, asked, results):
    for name, training in trainings.items():
        if name != "stock":
            commpool.fsdp_release(training.model)
    end(pool)
    if dist.get_rank() == 0:
        record("tests/torch/hardware_fsdp.py" + asked, {"ranks": dist.get_world_size(), **results})


def rank(_device):
    pool = commpool.Pool("fsdp", symmetric_across=dist.group.WORLD)
    trainings = {"stock": Training(), "windows": Training(pool)}
    asked = TOKENS
    if "--tokens" in sys.argv:
        asked = [TOKENS[TOKENS.index(int(sys.argv[sys.argv.index("--tokens") + 1]))]]
    results = {}
    if len(asked) > 1:
        trainings["windows, reduce-scatters too"] = Training(pool, reduce_scatters="pool")
        batch = trainings["stock"].batch(asked[0])
        results = {**losses_and_weights(trainings, batch), "peak": peaks(trainings, batch, pool),
                   "kernels": kernels(trainings, batch)}
    for tokens in asked:
        results[f"{tokens} tokens"] = steps_with(tokens, trainings)
    results["rings"] = {name: commpool.all_gather_ring(training.model).total_bytes >> 20
                        for name, training in trainings.items() if name != "stock"}
    finish(trainings, pool, "" if len(asked) > 1 else f" --tokens {asked[0]}", results)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 240, CORES))
