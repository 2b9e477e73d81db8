"""Pinned tensors in a pool beside torch's own: the bytes that they take, a pair of torch.empty and its free, and
training steps whose activations go to pinned memory and come back for backward, in turn.

The GPU's clock stands between the steps of a block, as in hardware_steps.py.
usage: hardware_pinned.py [MODEL...] [--record FILE] [--seconds N] [--small] [--tiny]      (default: all models)
  --seconds  that a model's rounds may take (45)
  --small    with smaller batches, whose activations need less of the host
"""

import contextlib
import functools
import os
import random
import statistics
import sys
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, pin_to_quiet_cores, ratio, record, report
from hardware_models import MODELS, TINY_MODELS, Training
from hardware_steps import SMALL, TINY, clocked, compared, milliseconds, rounds_of, step_ms, steps_of_a_block

KIB, MIB = 1 << 10, 1 << 20
RESIDENT, NO_SLOWER = 1.01, 1.002  # what NARROW decides
TENSORS, PAIRS, PAIR_ROUNDS = (20, 10, 3) if TINY else (100, 500, 40)
OFFLOADED = 4 * KIB if TINY else MIB  # smaller activations stay on the GPU
# In the names of hardware_steps.py: what is compared stands between two blocks of the same.
CONTENDERS = ["native", "pool", "native again"]


def pinned(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def torchs_bytes():
    torch._C._host_emptyCache()
    return torch.cuda.host_memory_stats()["allocated_bytes.current"]


def resident(pool):
    """What 100 live tensors take, of what was asked for: a third small ones, the others of 1 to 40 MiB."""
    chance = random.Random(7)
    sizes = [chance.randint(1, 64 * KIB) if number % 3 == 0 else chance.randint(MIB, (4 if TINY else 40) * MIB)
             for number in range(TENSORS)]
    begin = time.perf_counter()
    with commpool.use_pool(pool):
        kept = [pinned(size) for size in sizes]
    taken = {"pool": pool.stats().reserved_bytes.current / sum(sizes)}
    seconds = {"pool": time.perf_counter() - begin}
    del kept
    pool.trim()
    before, begin = torchs_bytes(), time.perf_counter()
    kept = [pinned(size) for size in sizes]
    seconds["native"] = time.perf_counter() - begin
    taken["native"] = (torchs_bytes() - before) / sum(sizes)
    del kept
    torchs_bytes()
    said = "passed" if taken["pool"] <= RESIDENT else "failed"
    print(f"{TENSORS} tensors, bytes taken of bytes asked for: a pool {taken['pool']:.4f}, torch "
          f"{taken['native']:.4f}; goal {RESIDENT} {said}", flush=True)
    return {"tensors": TENSORS, "requested_bytes": sum(sizes), "resident_of_requested": taken, "seconds": seconds,
            "goal": RESIDENT, "verdict": said}


def pairs(pool, nbytes):
    """Nanoseconds of torch.empty and its free, where memory is there already and no copy used it."""

    def contender(scope):
        def once():
            with scope():
                pinned(nbytes)
                begin = time.perf_counter()
                for _ in range(PAIRS):
                    pinned(nbytes)
                return 1e9 * (time.perf_counter() - begin) / PAIRS
        return once

    times = in_turn({"pool": contender(lambda: commpool.use_pool(pool)),
                     "native": contender(contextlib.nullcontext)}, PAIR_ROUNDS)
    found = {name: round(statistics.median(of), 1) for name, of in times.items()}
    print(f"torch.empty({nbytes}, pin_memory=True) and its free, ns: {found}", flush=True)
    return {"ns": found, **ratio(times, "pool", "native")}


def set_aside(activation):
    """A copy in pinned memory of what backward needs; parameters stay, for the GPU has them anyway."""
    if isinstance(activation, torch.nn.Parameter) or activation.numel() * activation.element_size() < OFFLOADED:
        return activation
    host = torch.empty(activation.size(), dtype=activation.dtype, pin_memory=True)
    host.copy_(activation, non_blocking=True)
    return host


def bring_back(kept):
    return kept if kept.is_cuda else kept.to("cuda", non_blocking=True)


class Contest:
    def __init__(self, name, pool):
        self.training, self.pool = Training(name, SMALL), pool
        self.steps = steps_of_a_block(self.training)

    def block(self, who, first):
        """Milliseconds of the steps that count."""
        scope = commpool.use_pool(self.pool) if who == "pool" else contextlib.nullcontext()
        with scope, torch.autograd.graph.saved_tensors_hooks(set_aside, bring_back):
            self.training.step(first)
            times = milliseconds(clocked(functools.partial(self.training.step, first + number)
                                         for number in range(self.steps)))
        return times


def offloading(name, pool):
    contest = Contest(name, pool)
    rounds = rounds_of(CONTENDERS, ["pool"], contest.block, contest.steps)
    held = {"pool": pool.stats().reserved_bytes.current,
            "native": torch.cuda.host_memory_stats()["allocated_bytes.current"]}
    found = {"held_bytes": held, "step_ms": step_ms(rounds, CONTENDERS)}
    print(f"{name}, offloaded: " + ", ".join(f"{who} {of:.2f} ms a step" for who, of in found["step_ms"].items()) +
          f"; held: a pool {held['pool'] / MIB:.0f} MiB, torch {held['native'] / MIB:.0f} MiB", flush=True)
    for who in ("native again", "pool"):
        found[who] = report(f"{name}, offloaded: {who} / native", compared(rounds, who), NO_SLOWER)
    return found


def main():
    models = TINY_MODELS if TINY else MODELS
    pin_to_quiet_cores(min(4, os.cpu_count()))
    torch.cuda.init()  # before that torch tells nothing of pinned memory
    pool = commpool.Pool("pinned", backing="pinned", device=0)
    record("tests/torch/hardware_pinned.py", {
        "resident": resident(pool), "pairs": {str(size): pairs(pool, size) for size in (4 * KIB, MIB)}})
    pool.destroy()
    for name in [model for model in models if model in sys.argv] or models:
        pool = commpool.Pool("offloaded", backing="pinned", device=0)
        found = offloading(name, pool)
        pool.destroy()
        torchs_bytes()
        record("tests/torch/hardware_pinned.py", {name: found})


if __name__ == "__main__":
    main()
