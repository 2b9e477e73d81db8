"""Steps of training: native, gradients scoped into a fixed pool, and an expandable pool as the whole allocator.

The three take turns in one process, a burst of steps each. What each holds is asked in processes of their own, side by
side, torch's expandable segments too. The allocator's own part of a step is what the step allocates and
frees, done again without the rest. Four minutes for all models.
usage: hardware_steps.py [MODEL...] [--record FILE] [--tiny]      (default: all models)
  --tiny  tries it on the emulator with a model of what that can run: its times mean nothing
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, pin_to_quiet_cores, ratio, record, report
from hardware_models import MODELS, TINY_MODELS, Training

TINY = "--tiny" in sys.argv
ROUNDS, STEPS, WARM, REPLAYS = (5, 1, 4, 5) if TINY else (30, 8, 16, 20)
SECONDS = 240 if TINY else 60  # so long the processes may take that tell what is held
WAYS = ["native", "whole", "expandable"]


def native(run, wrong):
    """What `run` returns without the router; `wrong` counts where the router had to stay."""
    wrong.append(not commpool.uninstall())
    try:
        return run()
    finally:
        commpool.install()


def whole(run, pool):
    """The same with the pool as the whole allocator."""
    commpool.install(default=pool)
    try:
        return run()
    finally:
        commpool.uninstall()
        commpool.install()


def seconds_a_step(training, scope=None):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        training.step(scope)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


def traced(training):
    """What a step allocates and frees, in its order: (number, bytes), and (number, 0) where it is freed."""
    torch.cuda.memory._record_memory_history("all", context=None)
    training.step()
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


def host_times(training, gradients, everything, wrong):
    """Milliseconds on the host of a step's allocations: each of the ways for all of them."""
    events = native(lambda: traced(training), wrong)

    def in_scope():
        with commpool.use_pool(gradients):
            return replayed(events)

    contenders = {"native": lambda: native(lambda: replayed(events), wrong), "fixed pool": in_scope,
                  "whole": lambda: whole(lambda: replayed(events), everything)}
    in_turn(contenders, 2)
    times = in_turn(contenders, REPLAYS)
    medians = {who: statistics.median(of) for who, of in times.items()}
    count = sum(nbytes > 0 for _, nbytes in events)
    print(f"  host time of a step's {count} allocations: " + ", ".join(f"{who} {of:.2f} ms"
                                                                       for who, of in medians.items()), flush=True)
    return {"allocations": count, "ms": medians, "whole / native": ratio(times, "whole", "native")}


def steps(name):
    """The three in turn."""
    wrong = []
    commpool.install()
    gradients, everything = commpool.Pool("gradients"), commpool.Pool("whole", mode="expandable", device=0)
    training, scope = native(lambda: Training(name), wrong), commpool.use_pool(gradients)
    contenders = {"native": lambda: native(lambda: seconds_a_step(training), wrong),
                  "scoped": lambda: seconds_a_step(training, scope),
                  "whole": lambda: whole(lambda: seconds_a_step(training), everything)}
    in_turn(contenders, max(1, WARM // STEPS))
    wrong.clear()
    times = in_turn(contenders, ROUNDS)
    found = {"step_ms": {who: 1e3 * statistics.median(of) for who, of in times.items()}, "router_stayed": sum(wrong),
             "routed": {pool.name: pool.stats().allocated_blocks.total for pool in (gradients, everything)}}
    print(f"{name}: " + ", ".join(f"{who} {of:.2f} ms a step" for who, of in found["step_ms"].items()), flush=True)
    for who, goal in [("scoped", 1.002), ("whole", 1.005)]:
        found[who] = report(f"{name}: {who} / native", ratio(times, who, "native"), goal, widest=0.005)
    found["host"] = host_times(training, gradients, everything, wrong)
    return found


def one_process(name, way):
    """What a few steps hold, as a line for `held`."""
    if way == "whole":
        commpool.install(default=commpool.Pool("whole", mode="expandable", device=0))
    training = Training(name)
    for _ in range(WARM):
        training.step()
    torch.cuda.synchronize()
    print(json.dumps(torch.cuda.max_memory_reserved() >> 20))


def held(name):
    """MiB that each way of allocating everything holds."""
    processes = {}
    for way in WAYS:
        environment = {key: value for key, value in os.environ.items() if "PYTORCH" not in key or "ALLOC" not in key}
        if way == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        processes[way] = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), *(["--tiny"] if TINY else []), "--one", name, way],
            env=environment, stdout=subprocess.PIPE, text=True)
    try:
        answers = {way: process.communicate(timeout=SECONDS)[0] for way, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    found = {way: json.loads(answer.splitlines()[-1]) for way, answer in answers.items()}
    print(f"  held: {', '.join(f'{way} {of} MiB' for way, of in found.items())}", flush=True)
    return found


def main():
    if "--one" in sys.argv:
        one_process(*sys.argv[sys.argv.index("--one") + 1:][:2])
        return
    models = TINY_MODELS if TINY else MODELS
    pin_to_quiet_cores(min(4, os.cpu_count()))
    for name in [model for model in models if model in sys.argv] or models:
        found = steps(name)
        torch.cuda.empty_cache()
        record("tests/adapters/torch/hardware_steps.py", {name: {**found, "held_mib": held(name)}})


if __name__ == "__main__":
    main()
