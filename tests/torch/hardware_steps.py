"""Steps of training: native, gradients scoped into a fixed pool, and an expandable pool as the whole allocator, alone
and with headroom.

They take turns in one process, a few steps each, and native once more: its own ratio says what the method cannot
tell apart. The GPU's clock stands between the steps of a block, and nobody waits for the GPU: so a step takes what it
takes in a training, and what one contender leaves behind falls into the step that begins each block and is not counted.
Each step is compared with the same step, of the same lengths, of native's two blocks in that round. A model's rounds
end where both intervals are narrow, whatever the ratios are, or when its time is up.

What each holds is asked in processes of their own, side by side, torch's expandable segments too. The allocator's own
part of a step is what the step allocates and frees, done again without the rest. Four minutes for all models.
usage: hardware_steps.py [MODEL...] [--record FILE] [--small] [--seconds N] [--tiny]      (default: all models)
  --small    with batches so small that the GPU waits for the host
  --seconds  that a model's rounds may take (45)
  --tiny     tries it on the emulator with a model of what that can run: its times mean nothing
"""

import collections
import functools
import gc
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, middle_of, pin_to_quiet_cores, ratio, record, report
from hardware_models import MODELS, TINY_MODELS, Training

TINY, SMALL = "--tiny" in sys.argv, "--small" in sys.argv
# The rounds before CLOCKS_STEADY are not counted.
CLOCKS_STEADY, LEAST, STEPS, REPLAYS = (1, 3, 2, 5) if TINY else (4, 20, 4, 20)
SECONDS = 20 if TINY else int(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 45
NARROW = 0.0012  # a half-width that decides at 1.002
HELD_STEPS, HELD_SECONDS = (4, 240) if TINY else (16, 60)
CONTENDERS = ["native", "scoped", "whole", "headroom", "native again"]
WAYS = ["native", "whole", "expandable"]


def clocked(steps):
    """Does the steps; the GPU's clock before, between and behind them."""
    clocks = [torch.cuda.Event(enable_timing=True)]
    clocks[0].record()
    for step in steps:
        step()
        clocks.append(torch.cuda.Event(enable_timing=True))
        clocks[-1].record()
    return clocks


def milliseconds(clocks):
    """Of each step between the clocks. Waits for the last one."""
    clocks[-1].synchronize()
    return [one.elapsed_time(other) for one, other in zip(clocks, clocks[1:])]


def steps_of_a_block(training):
    """Steps with other lengths each are all in each block."""
    return STEPS if len(training.lengths) == 1 else len(training.lengths)


def order_of(contenders, number):
    """In which they take turns in a round."""
    return contenders if number % 2 == 0 else contenders[::-1]


def step_ms(rounds, contenders):
    return {who: statistics.median(statistics.fmean(times[who]) for times in rounds) for who in contenders}


class Contest:
    """One model, and what its contenders allocate from."""

    def __init__(self, name):
        commpool.uninstall()
        self.training = Training(name, SMALL)
        self.gradients = commpool.Pool("gradients")
        self.everything = commpool.Pool("whole", mode="expandable", device=0)
        self.steps = steps_of_a_block(self.training)
        self.router_stayed = 0

    def route(self, who):
        self.router_stayed += not commpool.uninstall()
        commpool.set_headroom("2GiB" if who == "headroom" else None, 0)
        if not who.startswith("native"):
            commpool.install(default=None if who == "scoped" else self.everything)

    def block(self, who, first):
        """The GPU's clock before, between and behind the steps that count."""
        self.route(who)
        scope = commpool.use_pool(self.gradients) if who == "scoped" else None
        self.training.step(first - 1, scope)
        return clocked(functools.partial(self.training.step, first + number, scope) for number in range(self.steps))

    def rounds(self):
        """Milliseconds {contender: [of each step]}, round by round. A round is read when the next one is under way."""
        under_way = collections.deque()
        for number in itertools.count():
            under_way.append({who: self.block(who, number * self.steps) for who in order_of(CONTENDERS, number)})
            if len(under_way) == 1:
                continue
            clocks_of = under_way.popleft()
            times = {who: milliseconds(clocks) for who, clocks in clocks_of.items()}
            if number > CLOCKS_STEADY:
                yield times


def compared(rounds, who):
    """What a contender's steps take, of native's; of native again: of native; with headroom: of the same without."""
    others = {"native again": ["native"], "headroom": ["whole"]}.get(who, ["native", "native again"])
    rows = [[math.log(step) - statistics.fmean(math.log(times[other][place]) for other in others)
             for place, step in enumerate(times[who])] for times in rounds]
    middles = [statistics.median(times["native"][place] for times in rounds) for place in range(len(rows[0]))]
    return middle_of(rows, [middle / sum(middles) for middle in middles])


def rounds_of(contenders, judged, block, steps):
    """Rounds of `block(contender, first step)`, milliseconds of each step, until the intervals of those that are judged
    are narrow or the time is up. Each block is read before the next one begins."""
    gc.collect()
    gc.disable()
    begin, rounds = time.monotonic(), []
    for number in itertools.count():
        times = {who: block(who, number * steps) for who in order_of(contenders, number)}
        if number > CLOCKS_STEADY:
            rounds.append(times)
        if len(rounds) >= LEAST and (time.monotonic() - begin > SECONDS or
                                     all(compared(rounds, who)["half_width"] < NARROW for who in judged)):
            gc.enable()
            return rounds


def measured(contest):
    """The rounds, until they are enough."""
    rounds, begin = [], time.monotonic()
    for times in contest.rounds():
        rounds.append(times)
        if len(rounds) < LEAST or len(rounds) % 5:
            continue
        if time.monotonic() - begin > SECONDS:
            break
        if all(compared(rounds, who)["half_width"] < NARROW for who in ("scoped", "whole", "headroom")):
            break
    torch.cuda.synchronize()
    return rounds


def traced(training):
    """What a step allocates and frees, in its order: (number, bytes), and (number, 0) where it is freed."""
    torch.cuda.memory._record_memory_history("all", context=None)
    training.step(0)
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(None)
    events, live, numbers = [], {}, itertools.count()
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = next(numbers)
            events.append((live[entry["addr"]], entry["size"]))
        elif entry["action"] == "free_requested" and entry["addr"] in live:
            events.append((live.pop(entry["addr"]), 0))
    return events


def replayed(events):
    """Milliseconds of a step's allocations and frees, with Python's share."""
    tensors, device, empty = [None] * len(events), torch.device("cuda", 0), torch.empty
    begin = time.perf_counter()
    for number, nbytes in events:
        tensors[number] = empty(nbytes, dtype=torch.uint8, device=device) if nbytes else None
    return 1e3 * (time.perf_counter() - begin)


def host_times(contest):
    """Milliseconds on the host of a step's allocations: each of the ways for all of them."""
    contest.route("native")
    events = traced(contest.training)

    def through(who):
        contest.route(who)
        if who != "scoped":
            return replayed(events)
        with commpool.use_pool(contest.gradients):
            return replayed(events)

    contenders = {who: (lambda who=who: through(who)) for who in ("native", "scoped", "whole")}
    in_turn(contenders, 2)
    times = in_turn(contenders, REPLAYS)
    medians = {who: statistics.median(of) for who, of in times.items()}
    count = sum(nbytes > 0 for _, nbytes in events)
    print(f"  host time of a step's {count} allocations: " + ", ".join(f"{who} {of:.2f} ms"
                                                                       for who, of in medians.items()), flush=True)
    return {"allocations": count, "ms": medians, "whole / native": ratio(times, "whole", "native")}


def steps(name):
    """All in turn."""
    contest = Contest(name)
    gc.collect()
    gc.disable()
    rounds = measured(contest)
    found = {"batch": contest.training.batch_size, "router_stayed": contest.router_stayed,
             "step_ms": step_ms(rounds, CONTENDERS),
             "routed": {pool.name: pool.stats().allocated_blocks.total
                        for pool in (contest.gradients, contest.everything)}}
    print(f"{name}, batches of {contest.training.batch_size}: "
          + ", ".join(f"{who} {of:.2f} ms a step" for who, of in found["step_ms"].items()), flush=True)
    for who, goal in [("native again", 1.002), ("scoped", 1.002), ("whole", 1.005)]:
        found[who] = report(f"{name}: {who} / native", compared(rounds, who), goal, widest=0.005)
    found["headroom"] = report(f"{name}: whole with headroom / without", compared(rounds, "headroom"), 1.01)
    found["host"] = host_times(contest)
    gc.enable()
    return found


def one_process(name, way):
    """What a few steps hold, as a line for `held`."""
    pool = None
    if way == "whole":
        pool = commpool.Pool("whole", mode="expandable", device=0)
        commpool.install(default=pool)
    training = Training(name, SMALL)
    for number in range(HELD_STEPS):
        training.step(number)
    torch.cuda.synchronize()
    held_bytes = torch.cuda.max_memory_reserved()
    ours = pool.stats().reserved_bytes.peak if pool else 0
    print(json.dumps([held_bytes >> 20, held_bytes - ours >> 20, torch.cuda.max_memory_allocated() >> 20]))


def held(name):
    """MiB that each way of allocating everything holds; of it torch's own allocator; and tensors at the most."""
    processes = {}
    for way in WAYS:
        environment = {key: value for key, value in os.environ.items() if "PYTORCH" not in key or "ALLOC" not in key}
        if way == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        processes[way] = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *({"--tiny", "--small"} & {*sys.argv}), "--one", name, way],
            env=environment, stdout=subprocess.PIPE, text=True)
    try:
        answers = {way: process.communicate(timeout=HELD_SECONDS)[0] for way, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    found = {way: json.loads(answer.splitlines()[-1]) for way, answer in answers.items()}
    print("  held: " + ", ".join(f"{way} {of[0]} MiB (torch's own {of[1]}, tensors {of[2]})"
                                 for way, of in found.items()), flush=True)
    return {way: dict(zip(("held", "torch's own", "tensors"), of)) for way, of in found.items()}


def main():
    if "--one" in sys.argv:
        one_process(*sys.argv[sys.argv.index("--one") + 1:][:2])
        return
    models = TINY_MODELS if TINY else MODELS
    pin_to_quiet_cores(min(4, os.cpu_count()))
    for name in [model for model in models if model in sys.argv] or models:
        found = steps(name)
        torch.cuda.empty_cache()
        record("tests/torch/hardware_steps.py", {name: {**found, "held_mib": held(name)}})


if __name__ == "__main__":
    main()
