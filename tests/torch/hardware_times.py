"""What commpool.torch costs on the host: torch.empty out of and in a scope, and a scope itself.

Where code and data come to lie differs from process to process, and moves a pair by more than the router costs. So many
processes measure, a few side by side on cores of their own, each in rounds of short bursts; its medians count as one
round. Two minutes.
usage: hardware_times.py [--record FILE] [--tiny]
  --tiny  tries it on the emulator: its times mean nothing
"""

import concurrent.futures
import gc
import json
import operator
import os
import queue
import statistics
import subprocess
import sys
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, quietest_cores, ratio, record, report

TINY = "--tiny" in sys.argv
PROCESSES, SIDE_BY_SIDE, ROUNDS, BURSTS, PAIRS = (2, 2, 3, 1, 10) if TINY else (32, 4, 100, 3, 100)
SECONDS = 150  # after which no further process begins
SIZES = {"512 B": 512, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def quickest(burst):
    """Nanoseconds of one of PAIRS, in the quickest of a few bursts, behind one that warms the caches."""
    burst()
    times = []
    for _ in range(BURSTS):
        begin = time.perf_counter_ns()
        burst()
        times.append((time.perf_counter_ns() - begin) / PAIRS)
    return min(times)


def pairs(nbytes):
    """Nanoseconds of a torch.empty and its end."""
    empty, device = torch.empty, torch.device("cuda", 0)

    def burst():
        for _ in range(PAIRS):
            empty(nbytes, dtype=torch.uint8, device=device)

    return quickest(burst)


def without_router(nbytes):
    if not commpool.uninstall():
        raise RuntimeError("blocks of ours are alive")
    result = pairs(nbytes)
    commpool.install()
    return result


def in_scope(pool, nbytes):
    with commpool.use_pool(pool):
        return pairs(nbytes)


def empties(pool, nbytes):
    return {
        "native": lambda: without_router(nbytes),
        "outside": lambda: pairs(nbytes),
        "native again": lambda: without_router(nbytes),
        "in a scope": lambda: in_scope(pool, nbytes),
    }


def scopes(pool):
    theirs = torch.cuda.MemPool()
    use_pool, use_mem_pool = commpool.use_pool, torch.cuda.use_mem_pool

    def ours():
        for _ in range(PAIRS):
            with use_pool(pool):
                pass

    def torchs():
        for _ in range(PAIRS):
            with use_mem_pool(theirs):
                pass

    return {"use_pool": lambda: quickest(ours), "use_mem_pool": lambda: quickest(torchs)}


def medians(times):
    """Of each contender, as a share of the first's time in the same round: the clock of a shared core jumps."""
    first = next(iter(times.values()))
    middle = statistics.median(first)
    return {who: middle * statistics.median(map(operator.truediv, of, first)) for who, of in times.items()}


def one_process(core):
    """Medians of each contender, as a line for `main`."""
    torch.empty(1, device="cuda")
    os.sched_setaffinity(0, {core})
    gc.disable()
    commpool.install()
    pool = commpool.Pool("times")
    contenders = {name: empties(pool, nbytes) for name, nbytes in SIZES.items()}
    contenders["scope"] = scopes(pool)
    found = {}
    for name, of in contenders.items():
        in_turn(of, 2)  # warm
        found[name] = medians(in_turn(of, ROUNDS))
    print(json.dumps(found))


def processes():
    """{what: {contender: a median of each process}}"""
    begin, found, cores = time.monotonic(), {}, queue.SimpleQueue()
    for core in quietest_cores(min(SIDE_BY_SIDE, os.cpu_count())):
        cores.put(core)

    def run(_number):
        core = cores.get()
        try:
            if time.monotonic() - begin > SECONDS:
                return None
            return subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--one", str(core)],
                                  capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            cores.put(core)

    with concurrent.futures.ThreadPoolExecutor(cores.qsize()) as pool:
        runs = [run for run in pool.map(run, range(PROCESSES)) if run is not None]
    for run in runs:
        if run.returncode:
            raise RuntimeError(run.stderr)
        for name, contenders in json.loads(run.stdout.splitlines()[-1]).items():
            for who, of in contenders.items():
                found.setdefault(name, {}).setdefault(who, []).append(of)
    print(f"{len(runs)} processes, {time.monotonic() - begin:.0f} s", flush=True)
    return found


def judged(name, times):
    """What is recorded of one size."""
    shown = {who: statistics.median(of) for who, of in times.items()}
    print(f"{name}: " + ", ".join(f"{who} {of:.0f} ns" for who, of in shown.items()))
    found = {"ns": shown}
    for key, who, goal in [("noise", "native again", 1.01), ("outside", "outside", 1.01),
                           ("in_scope", "in a scope", 0.95)]:
        found[key] = report(f"torch.empty {name}: {who} / native", ratio(times, who, "native"), goal)
    return found


def main():
    if "--one" in sys.argv:
        one_process(int(sys.argv[sys.argv.index("--one") + 1]))
        return
    times = processes()
    empty = {name: judged(name, times[name]) for name in SIZES}
    of_scopes = times["scope"]
    shown = {who: statistics.median(of) for who, of in of_scopes.items()}
    print("scope: " + ", ".join(f"{who} {of:.0f} ns" for who, of in shown.items()))
    scope = report("scope: use_pool / torch.cuda.use_mem_pool", ratio(of_scopes, "use_pool", "use_mem_pool"), 0.2)
    record("tests/torch/hardware_times.py", {"empty": empty, "scopes": {"ns": shown, "scope": scope}})


if __name__ == "__main__":
    main()
