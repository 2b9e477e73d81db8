"""What the checks on several GPUs share: ranks that cannot hang, the slowest rank's time, and profiled kernels."""

import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import commpool.torch as commpool
from commpool.torch._group import gathered

from hardware_measure import in_turn, quietest_cores, ratio, report, until_narrow
from rank_processes import unused_port


_WIDEST = 0.005  # half an interval: a wider one decides nothing near 1


def tiny():
    """Whether this is a trial without kernels and clocks, on the emulator."""
    return "--tiny" in sys.argv


def advice(**words):
    """What `advise` measures here; of few sizes in a trial."""
    return commpool.advise(sizes=[8 << 10, 1 << 20], **words) if tiny() else commpool.advise(**words)


def _pin_to_own_cores(cores):
    """A rank's threads, those that torch and NCCL start included, on the quietest cores of its part of them."""
    allowed, ranks, number = sorted(os.sched_getaffinity(0)), int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    part = len(allowed) // ranks
    if part >= cores:
        os.sched_setaffinity(0, allowed[number * part:(number + 1) * part])
        os.sched_setaffinity(0, quietest_cores(cores))


def start_ranks(rank, seconds, cores=None):
    """Runs this program once for each GPU, `rank()` in each; all are killed when the time is up or one fails.

    With `cores` each rank keeps to so many of its own.
    """
    if "RANK" in os.environ:
        if cores is not None:
            _pin_to_own_cores(cores)
        device = torch.device("cuda", int(os.environ["RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        rank(device)
        torch.cuda.synchronize()
        dist.destroy_process_group()
        return 0
    ranks = min(2 if tiny() else 4, torch.cuda.device_count())
    if ranks < 2:
        print("skipped: 2 GPUs are needed")
        return 0
    shared = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port()}
    processes = [subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(number)})
                 for number in range(ranks)]
    try:
        return _wait(processes, time.monotonic() + (4 * seconds if tiny() else seconds))
    finally:
        for process in processes:
            process.kill()


def _wait(processes, deadline):
    for process in processes:
        while process.poll() is None:
            if any(other.poll() for other in processes):
                print("a rank failed: the others are ended", flush=True)
                return 1
            if time.monotonic() > deadline:
                print("the time is up: all ranks are ended", flush=True)
                return 1
            time.sleep(0.2)  # between looks at processes
    return max(abs(process.returncode) for process in processes)


def everywhere(value):
    """What every rank says: over the store, so that what is measured is not what measures."""
    return gathered(dist.group.WORLD, value)


def _begin_together():
    """Within microseconds."""
    everywhere(None)
    dist.all_reduce(torch.zeros(1, device="cuda"))
    torch.cuda.synchronize()


def seconds_a_step(step, steps):
    """Of the slowest rank."""
    _begin_together()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return max(everywhere((time.perf_counter() - begin) / steps))


def compare(what, steps_of, pairs, rounds, steps):
    """Rounds in turn of `{name: step}`; reports each (of, to, goal) of `pairs`, and returns what is recorded."""
    contenders = {name: (lambda step=step: seconds_a_step(step, steps)) for name, step in steps_of.items()}
    in_turn(contenders, 1)
    times = in_turn(contenders, rounds)
    found = {"step_ms": {name: round(1e3 * sorted(of)[len(of) // 2], 4) for name, of in times.items()}}
    if dist.get_rank() == 0:
        print(f"{what}: " + ", ".join(f"{name} {of} ms" for name, of in found["step_ms"].items()), flush=True)
        for of, to, goal in pairs:
            found[f"{of} / {to}"] = report(f"{what}: {of} / {to}", ratio(times, of, to), goal)
    return found


def _round(steps_of, names, steps, host):
    """Seconds a step of each in turn, by the GPU's clock, of the slowest rank: between them nobody waits for the GPU.

    The first step of each is not counted: it begins while the other's ends. `host` gets what this rank's host took.
    """
    everywhere(gc.collect())
    clocks = []
    for name in names:
        steps_of[name]()
        begin, end_of = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        begun = time.perf_counter()
        for _ in range(steps):
            steps_of[name]()
        host[name].append((time.perf_counter() - begun) / steps)
        end_of.record()
        clocks.append((begin, end_of))
    torch.cuda.synchronize()
    ranks = everywhere([1e-3 * begin.elapsed_time(end_of) / steps for begin, end_of in clocks])
    return [max(of) for of in zip(*ranks)]


def compare_narrowly(what, steps_of, pair, steps, seconds, half_width):
    """Two ways in rounds A B B A, until the ratio's interval is that narrow or steps have taken so many seconds.

    Python's own garbage is collected between rounds. All ranks see the same times, so all stop at once.
    """
    of, to, goal = pair
    _round(steps_of, [of, to], steps, {of: [], to: []})
    host = {of: [], to: []}
    gc.freeze()
    gc.disable()
    try:
        times = until_narrow(lambda names: _round(steps_of, names, steps, host), of, to, seconds / steps, half_width)
    finally:
        gc.enable()
        gc.unfreeze()
    found = {what_of: {name: round(1e3 * sorted(all_of)[len(all_of) // 2], 4) for name, all_of in of_each.items()}
             for what_of, of_each in (("step_ms", times), ("host_ms", host))}
    if dist.get_rank() == 0:
        print(f"{what}: " + ", ".join(f"{name} {ms} ms, its host {found['host_ms'][name]} ms"
                                      for name, ms in found["step_ms"].items()), flush=True)
        found[f"{of} / {to}"] = report(f"{what}: {of} / {to}", ratio(times, of, to), goal, _WIDEST)
    return found


def end(pool):
    """Closes a pool; where it cannot, that is said, its registrations end, and what was measured is not lost."""
    gc.collect()
    torch.cuda.synchronize()
    pool.reclaim()
    try:
        pool.close()
    except commpool.CommpoolError as error:
        print(f"rank {dist.get_rank()}: {error}", flush=True)
        pool.abandon(dist.group.WORLD)
    pool.destroy()


def graph_of(work):
    """A graph of the work, which is done twice before."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        result = work()
    return graph, result


def _spans(step, steps):
    """What this rank's GPU does in these steps, in order: begin and end in microseconds, and the name; None in a trial.
    """
    _begin_together()
    if tiny():
        for _ in range(steps):
            step()
        return None
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:  # torch replaces the file that it writes
        trace = pathlib.Path(folder, "trace.json")
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return sorted((event["ts"], event["ts"] + event["dur"], event["name"].partition("(")[0]) for event in events
                  if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))


def _profiled(step, steps):
    """Each kernel of NCCL's on this rank, in order: its name and microseconds; None where there is no profile."""
    spans = _spans(step, steps)
    if spans is None:
        return None
    return [(name, end_of - begin) for begin, end_of, name in spans if name.startswith("nccl")]


def nccl_kernels(step, steps=3):
    """Microseconds a step of each kernel of NCCL's, by its name, on this rank; None where there is no profile."""
    kernels = _profiled(step, steps)
    if kernels is None:
        return None
    times = {}
    for name, us in kernels:
        times[name] = times.get(name, 0.0) + us / steps
    return {name: round(of, 1) for name, of in sorted(times.items())}


def _covered(spans):
    """Microseconds in which at least one of the spans runs."""
    total, reached = 0.0, float("-inf")
    for begin, end_of, _ in spans:
        total += max(0.0, end_of - max(begin, reached))
        reached = max(reached, end_of)
    return total


def exposed_collectives(step, steps=3):
    """The share of the steps' time in which a rank's GPU does nothing but NCCL's kernels; None without a profile.

    The smallest of the ranks': who arrives first waits in a kernel for the others.
    """
    spans = _spans(step, steps)
    if not spans:
        return None
    rest = [span for span in spans if not span[2].startswith("nccl")]
    whole = max(end_of for _, end_of, _ in spans) - spans[0][0]
    return round(min(everywhere((_covered(spans) - _covered(rest)) / whole)), 4)


def all_reduces_without_waiting(step, steps=3):
    """Of each all-reduce of a step, in order, its kernel and microseconds without what ranks wait for each other.

    A kernel lasts from its own rank's arrival: the last one waits for nobody, so of each all-reduce the shortest among
    the ranks' counts. None where there is no profile, or the ranks' kernels or the steps' differ.
    """
    own = [each for each in _profiled(step, steps) or [] if "AllReduce" in each[0]]
    ranks = everywhere(own)
    if not own or len(own) % steps or len({tuple(name for name, _ in of) for of in ranks}) > 1:
        return None
    shortest = [(same[0][0], min(us for _, us in same)) for same in zip(*ranks)]
    a_step = len(shortest) // steps
    if any(shortest[place][0] != shortest[place % a_step][0] for place in range(len(shortest))):
        return None
    return [(shortest[place][0], round(sum(us for _, us in shortest[place::a_step]) / steps, 1))
            for place in range(a_step)]
