"""What the timings on hardware share: rounds in turn, ratios with their 95 % interval, and records."""

import datetime
import json
import math
import os
import statistics
import sys
import time

# Student's t for 95 %, by degrees of freedom; the last one for more.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093,
      29: 2.045, 59: 2.001}
_TRIMMED = 0.2  # of the rounds at each end: what else ran on the machine meanwhile


def _students_t(degrees):
    return next(value for least, value in reversed(_T.items()) if degrees >= least)


def quietest_cores(number):
    """The cores that did least in the last moment, of those that this process may use."""

    def idle():
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
        return {int(row[0][3:]): int(row[4]) for row in rows}

    before = idle()
    time.sleep(0.5)  # a span to compare idle time over
    after = idle()
    by_idleness = sorted(os.sched_getaffinity(0), key=lambda core: before.get(core, 0) - after.get(core, 0))
    return by_idleness[:number]


def pin_to_quiet_cores(number=1):
    """Keeps this thread, and those that it starts, on the quietest cores: what else runs there is a clock's noise."""
    cores = quietest_cores(number)
    os.sched_setaffinity(0, cores)
    return cores


def in_turn(contenders, rounds):
    """Times of `{name: function}` in each round, A B C ... C B A: what drifts touches all alike."""
    times = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
        for name in order:
            times[name].append(contenders[name]())
    return times


def middle_of(rows, weights):
    """The middle of rounds' ratios, and the half-width of its 95 % interval.

    A round is a row of ratios' logarithms, one for each place in it, and a place counts by its weight; weights add up
    to 1. A trimmed geometric mean: of each place the fifth of the rounds with the least and the fifth with the largest
    ratio are left out, and the interval is that of such a mean (Tukey and McLaughlin's). What disturbs the places of a
    round together widens it.
    """
    cut = int(_TRIMMED * len(rows))
    middle, values = 0.0, [0.0] * len(rows)
    for column, weight in zip(zip(*rows), weights):
        kept = sorted(column)[cut:len(rows) - cut]
        middle += weight * statistics.fmean(kept)
        values = [value + weight * min(max(log, kept[0]), kept[-1]) for value, log in zip(values, column)]
    error = statistics.stdev(values) / ((1 - 2 * cut / len(rows)) * math.sqrt(len(rows)))
    middle, degrees = math.exp(middle), len(rows) - 2 * cut - 1
    return {"ratio": middle, "half_width": middle * (math.exp(_students_t(degrees) * error) - 1), "rounds": len(rows)}


def ratio(times, of, to):
    """Of one contender to another: the middle of the rounds' ratios."""
    return middle_of([[math.log(one / other)] for one, other in zip(times[of], times[to])], [1.0])


def until_narrow(a_round, of, to, seconds, half_width, least=12):
    """Rounds of `a_round([to, of, of, to])`, which are the seconds of each, until the interval of the ratio is that
    narrow, or they have taken so long. A round's times are the means of two: what drifts within it touches both alike.
    """
    times, spent = {of: [], to: []}, 0.0
    while True:
        first, second, third, last = a_round([to, of, of, to])
        times[of].append((second + third) / 2)
        times[to].append((first + last) / 2)
        spent += first + second + third + last
        if len(times[of]) >= least and (spent > seconds or ratio(times, of, to)["half_width"] <= half_width):
            return times


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


def grown(samples, least=8):
    """Names of figures that grow with the samples, `[{name: value}]`, of a program's lives: whose largest value in the
    last quarter is above that of the second one by more than 3, or, of bytes, by more than 4 MiB and a thousandth. The
    first quarter warms up. "samples" where there are fewer than `least`.
    """
    if len(samples) < least:
        return ["samples"]
    quarter, found = len(samples) // 4, []
    for name in samples[0]:
        early, late = (max(sample[name] for sample in of) for of in (samples[quarter:2 * quarter], samples[-quarter:]))
        if late > early + (early // 1000 + (4 << 20) if name.endswith("bytes") else 3):
            found.append(name)
    return found


def record(command, results):
    """Appends a line to the file after --record, where there is one."""
    if "--record" not in sys.argv:
        return
    import torch

    with open(sys.argv[sys.argv.index("--record") + 1], "a", encoding="utf-8") as file:
        machine = {"device": torch.cuda.get_device_name(0), "devices": torch.cuda.device_count(),
                   "torch": torch.__version__, "cuda": torch.version.cuda, "cores": os.cpu_count()}
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        json.dump({"command": command, "date": date, "machine": machine, "results": results}, file, sort_keys=True)
        file.write("\n")
