"""FSDP2 with its all-gathers in windows by copy engines, beside FSDP2 as it is: steps, memory, losses, kernels.

10 layers of 134 million parameters in bfloat16. usage: hardware_fsdp.py [--record FILE] [--tiny] [--tokens N]
  --tokens  4096, 2048 or 1024: that alone, and nothing but steps, until their ratio is known to 0.3 %
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import commpool.torch as commpool

from hardware_group import compare, compare_narrowly, end, everywhere, nccl_kernels, start_ranks, tiny
from hardware_measure import record

LAYERS, WIDTH = 10, 4096
GOALS = {4096: 0.965, 2048: 0.98, 1024: 1.005}
ROUNDS, STEPS, CHECKED = 20, 4, 10
SHORT = 1024  # tokens: steps so short that their goal is near 1
NARROW = 0.003  # half an interval of these, and of a length that is asked alone
CORES = 6  # of a rank's own
SECONDS, STEPS_A_TIME = 60, 3  # of steps, for such


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class TinyLayer(torch.nn.Module):
    """Of operations that the emulator has."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4096,), 1.5))

    def forward(self, x):
        return x * self.weight


class Training:
    """A sharded model and its steps."""

    def __init__(self, pool=None, **words):
        torch.manual_seed(1)
        with torch.device("cpu" if tiny() else "cuda"):
            layers = [TinyLayer() if tiny() else Layer().bfloat16() for _ in range(2 if tiny() else LAYERS)]
        model = torch.nn.Sequential(*layers).cuda()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        self.model = model if pool is None else commpool.fsdp(model, pool, **words)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=not tiny())

    def step(self, batch):
        loss = self.model(batch)
        loss = loss.sum() if tiny() else loss.float().square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def weights(self):
        """A digest of the last layer as this rank has it when it is gathered."""
        layer = self.model[-1]
        layer.unshard()
        gathered = next(layer.parameters()).detach().view(torch.uint8).cpu().numpy().tobytes()
        layer.reshard()
        return hashlib.sha256(gathered).hexdigest()


def batch_of(tokens, device):
    if tiny():
        return torch.full((4096,), 1.0 + dist.get_rank(), device=device)
    torch.manual_seed(10 + dist.get_rank())
    return torch.randn(tokens, WIDTH, device=device, dtype=torch.bfloat16)


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


def steps_with(tokens, trainings, device, alone):
    batch = batch_of(tokens, device)
    steps = {name: (lambda training=training: training.step(batch)) for name, training in trainings.items()}
    if alone or tokens == SHORT:
        return compare_narrowly(f"FSDP2, {tokens} tokens", steps, ("windows", "stock", GOALS[tokens]), STEPS_A_TIME,
                                1 if tiny() else SECONDS, NARROW)
    pairs = [(name, "stock", GOALS[tokens]) for name in trainings if name != "stock"]
    return compare(f"FSDP2, {tokens} tokens", steps, pairs, 5 if tiny() else ROUNDS, 1 if tiny() else STEPS)


def finish(trainings, pool, asked, results):
    for name, training in trainings.items():
        if name != "stock":
            commpool.fsdp_release(training.model)
    end(pool)
    if dist.get_rank() == 0:
        record("tests/torch/hardware_fsdp.py" + asked, {"ranks": dist.get_world_size(), **results})


def rank(device):
    pool = commpool.Pool("fsdp", symmetric_across=dist.group.WORLD)
    trainings = {"stock": Training(), "windows": Training(pool),
                 "windows, reduce-scatters too": Training(pool, reduce_scatters="pool")}
    asked = [int(sys.argv[sys.argv.index("--tokens") + 1])] if "--tokens" in sys.argv else list(GOALS)
    results = {} if len(asked) == 1 else losses_and_weights(trainings, batch_of(4096, device))
    for tokens in asked:
        results[f"{tokens} tokens"] = steps_with(tokens, trainings, device, len(asked) == 1)
    if len(asked) == 1:
        finish(trainings, pool, f" --tokens {asked[0]}", results)
        return
    batch = batch_of(4096, device)
    results["peak"] = peaks(trainings, batch, pool)
    results["kernels"] = kernels(trainings, batch)
    results["rings"] = {name: commpool.all_gather_ring(training.model).total_bytes >> 20
                        for name, training in trainings.items() if name != "stock"}
    finish(trainings, pool, "", results)


if __name__ == "__main__":
    sys.exit(start_ranks(rank, 240, CORES))
