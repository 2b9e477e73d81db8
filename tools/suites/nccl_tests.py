#!/usr/bin/env python3
"""Runs NCCL's own nccl-tests with and without `commpool run`, and compares their results and bandwidth.

    python3 tools/suites/nccl_tests.py --build DIR --commpool PROGRAM [--gpus 2] [--tests REGEX] [--record FILE]

DIR has their programs, built from a checkout; nothing of it is here. Each runs over plain buffers, and over symmetric
windows with ncclMemAlloc served by a pool: plain, `run`, `run`, plain. A ratio is bandwidth under `run` / plain, the
mean over sizes from 1 MiB on, with its interval at 95 %. The status is 0 where all runs end well, no result is wrong,
and no ratio is surely below 0.99.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

import comparison

SIZES = ["-b", "8", "-e", "256M", "-f", "2"]
WAYS = {"plain buffers": ([], []), "windows": (["-R", "2"], ["--nccl-memory", "pools", "--peers", "all"])}
LEAST = 1 << 20  # below it a time is that of a launch
# size ... (time, bandwidth of the algorithm, of the bus, wrong results) out of place, then in place
ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+" + 2 * r"\s+\S+\s+\S+\s+(\S+)\s+(\S+)")


def run(program, options, way):
    """{(size, place): bandwidth}, how many results were wrong; or what it said last."""
    command = [program, "-g", str(options.gpus), *SIZES, *WAYS[way][0]]
    command = ([options.commpool, "run", *WAYS[way][1], "--"] if options.under_run else []) + command
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rows = [match.groups() for match in map(ROW.match, done.stdout.splitlines()) if match]
    if done.returncode or not rows:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1])
    speeds = {(int(row[0]), place): float(row[1 + 2 * place]) for row in rows for place in (0, 1)}
    return speeds, sum(float(wrong) for row in rows for wrong in (row[2], row[4]) if wrong != "N/A")


def compare(program, options, way):
    """What a line of the record says of one program."""
    found = []
    for options.under_run in (False, True, True, False):
        found.append(run(program, options, way))
    first, second, third, last = (speeds for speeds, _ in found)
    ratios = [(second[key] + third[key]) / (first[key] + last[key])
              for key in first if key[0] >= LEAST and first[key] + last[key] > 0]
    width = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
    return {"ratio": statistics.mean(ratios), "half_width": width, "wrong": sum(wrong for _, wrong in found),
            "sizes": len(first) // 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--commpool", required=True, metavar="PROGRAM")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--tests", default="", metavar="REGEX", help="of the programs, those whose name has this")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="appends a line of JSON")
    options = parser.parse_args()
    results, bad = {}, 0
    for program in sorted(options.build.glob("*_perf")):
        for way in WAYS if re.search(options.tests, program.name) else ():
            name = f"{program.name} {way}"
            try:
                found = compare(program, options, way)
                bad += found["wrong"] > 0 or found["ratio"] + found["half_width"] < 0.99
                said = "{ratio:.3f} +- {half_width:.3f}, {wrong:.0f} wrong, {sizes} sizes".format(**found)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                found, bad, said = {"failed": str(error)}, bad + 1, f"failed: {error}"
            results[name] = found
            print(f"{name}: {said}", flush=True)
    if options.record is not None:
        comparison.record(options.record, "tools/suites/nccl_tests.py", {"gpus": options.gpus}, results)
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
