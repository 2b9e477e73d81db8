"""What the timings on hardware share: rounds in turn, ratios with their 95 % interval, and records."""

import datetime
import json
import math
import os
import statistics
import sys
import time

import torch

# Student's t for 95 %, by degrees of freedom; the last one for more.
_T = {4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045, 59: 2.001}


def _students_t(rounds):
    return next((value for degrees, value in reversed(_T.items()) if rounds - 1 >= degrees), 3.2)


def pin_to_a_quiet_core():
    """Keeps this thread on the core that did least in the last moment: what else runs there is the noise of a clock."""

    def idle():
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
        return {int(row[0][3:]): int(row[4]) for row in rows}

    before = idle()
    time.sleep(0.5)  # a span to compare idle time over
    after = idle()
    core = max(os.sched_getaffinity(0), key=lambda number: after.get(number, 0) - before.get(number, 0))
    os.sched_setaffinity(0, {core})
    return core


def in_turn(contenders, rounds):
    """Times of `{name: function}` in each round, A B C ... C B A: what drifts touches all alike."""
    times = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
        for name in order:
            times[name].append(contenders[name]())
    return times


def ratio(times, of, to):
    """The geometric mean of a round's ratios, and the half-width of its 95 % interval."""
    logs = [math.log(one / other) for one, other in zip(times[of], times[to])]
    half = _students_t(len(logs)) * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = math.exp(statistics.fmean(logs))
    return {"ratio": middle, "half_width": middle * (math.exp(half) - 1), "rounds": len(logs)}


def verdict(found, goal, widest=None):
    """Whether a ratio is at most its goal: yes, no, or undecided where the interval is too wide or spans the goal."""
    low, high = found["ratio"] - found["half_width"], found["ratio"] + found["half_width"]
    if widest is not None and found["half_width"] > widest:
        return "undecided"
    return "passed" if high <= goal else "failed" if low > goal else "undecided"


def report(what, found, goal, widest=None):
    """Prints a line, and returns what is recorded of it."""
    said = verdict(found, goal, widest)
    print(f"{what:<58} {found['ratio']:7.4f} +- {found['half_width']:.4f}  goal {goal:<6} {said}", flush=True)
    return {**found, "goal": goal, "verdict": said}


def record(command, results):
    """Appends a line to the file after --record, where there is one."""
    if "--record" not in sys.argv:
        return
    with open(sys.argv[sys.argv.index("--record") + 1], "a", encoding="utf-8") as file:
        machine = {"device": torch.cuda.get_device_name(0), "devices": torch.cuda.device_count(),
                   "torch": torch.__version__, "cuda": torch.version.cuda, "cores": os.cpu_count()}
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        json.dump({"command": command, "date": date, "machine": machine, "results": results}, file, sort_keys=True)
        file.write("\n")
