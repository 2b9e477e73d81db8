#!/usr/bin/env python3
"""Runs NCCL's own nccl-tests with and without `commpool run`, and compares their results and bandwidth.

    python3 tools/suites/nccl_tests.py --build DIR --commpool PROGRAM [--tests REGEX] [--record FILE]

DIR has their programs, built from a checkout; nothing of it is here. Each runs on two GPUs over plain buffers, and over
symmetric windows with ncclMemAlloc served by a pool: five rounds of plain, `run`, `run`, plain. A round's ratio is
bandwidth under `run` / plain, the mean over sizes from 1 MiB on; their mean has its interval at 95 %. The status is 0
where all runs end well, no result is wrong, and no ratio is surely below 0.99.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

import comparison

WORDS = ["-g", "2", "-b", "8", "-e", "256M", "-f", "2"]
WAYS = {"plain buffers": ([], []), "windows": (["-R", "2"], ["--nccl-memory", "pools", "--peers", "all"])}
LEAST = 1 << 20  # below it a time is that of a launch
ROUNDS, STUDENT = 5, 2.776  # Student's t of so many
# Size, count, type, reduction (hypercube has none), root; then (time, bandwidth of the algorithm, of the bus, wrong
# results) out of place and in place.
ROW = re.compile(r"^ *(\d+) +\d+ +\w+ +(?:[a-z]+ +)?-?\d+" + 2 * r" +\S+ +\S+ +([\d.]+) +(\S+)", re.M)


def run(words):
    """The rows' size and two bandwidths, from LEAST on; how many results were wrong. Raises RuntimeError with what it
    said last.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    rows = ROW.findall(done.stdout)
    wrong = sum(float(text) for row in rows for text in row[2::2] if text != "N/A")
    large = [(int(row[0]), float(row[1]), float(row[3])) for row in rows if int(row[0]) >= LEAST]
    if not large or done.returncode and not wrong:  # a wrong result is a bad end, too
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip(" #")]
        raise RuntimeError(said[-1] if said else f"status {done.returncode}, and no word")
    return large, wrong


def compare(program, commpool, way):
    """What a line of the record says of one program."""
    plain = [program, *WORDS, *WAYS[way][0]]
    under = [commpool, "run", *WAYS[way][1], "--", *plain]
    found, ratios = [], []
    for _ in range(ROUNDS):
        found += [run(words) for words in (plain, under, under, plain)]
        ratios.append(statistics.mean((second[place] + third[place]) / (first[place] + last[place]) for place in (1, 2)
                                      for first, second, third, last in zip(*(rows for rows, _ in found[-4:]))))
    return {"ratio": statistics.mean(ratios), "half_width": STUDENT * statistics.stdev(ratios) / ROUNDS ** 0.5,
            "wrong": sum(wrong for _, wrong in found), "sizes": len(found[0][0])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--commpool", required=True, metavar="PROGRAM")
    parser.add_argument("--tests", default="", metavar="REGEX", help="of the programs, those whose name has this")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="appends a line of JSON")
    options = parser.parse_args()
    results, bad = {}, 0
    programs = [path for path in sorted(options.build.glob("*_perf")) if re.search(options.tests, path.name)]
    for program, way in ((program, way) for program in programs for way in WAYS):
        try:
            found = compare(program, options.commpool, way)
            bad += found["wrong"] > 0 or found["ratio"] + found["half_width"] < 0.99
            said = "{ratio:.3f} +- {half_width:.3f}, {wrong:.0f} wrong, {sizes} sizes".format(**found)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            found, bad, said = {"failed": str(error)}, bad + 1, f"failed: {error}"
        results[f"{program.name} {way}"] = found
        print(f"{program.name} {way}: {said}", flush=True)
    if options.record is not None:
        command = " ".join(["tools/suites/nccl_tests.py", *(["--tests", options.tests] if options.tests else [])])
        comparison.record(options.record, command, {"gpus": 2}, results)
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
