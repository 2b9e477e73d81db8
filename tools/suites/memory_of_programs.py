#!/usr/bin/env python3
"""Measures the memory that programs of others hold, with PyTorch's allocator and with a pool that serves all.

    PYTHON tools/suites/memory_of_programs.py [--programs REGEX] [--record FILE]

PYTHON has torch, commpool and the libraries that programs_of_others.py beside this file imports. Each program runs in a
process of its own under each allocator, on the first GPU. The table has what was asked for at the peak, and for each
allocator what was held at the peak, as a share of that.

The status is 0 where the goals hold, 1 where one is missed, and 2 where a program failed.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

import comparison

NATIVE, SEGMENTS, FIXED, EXPANDABLE = ALLOCATORS = ("native", "expandable segments", "fixed pool", "expandable pool")


def run(words, environment=None):
    """What a child's last line said, or its `error`."""
    begun = time.monotonic()
    child = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    said = re.findall('^{"loss".*', child.stdout, re.M)
    if child.returncode == 0 and said:
        return {**json.loads(said[-1]), "seconds": round(time.monotonic() - begun, 1)}
    print(child.stderr[-4000:], file=sys.stderr, flush=True)
    raised = re.findall(r"^[\w.]+: .*", child.stderr, re.M) if child.returncode == 1 else []
    return {"error": ["took too long" if child.returncode == 124 else f"status {child.returncode}", *raised][-1]}


def _environment(allocator):
    """The first GPU, for Trainer would take all; and both names of a variable, of which torch reads either."""
    conf = f"expandable_segments:{allocator == SEGMENTS}"
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return dict(os.environ, CUDA_VISIBLE_DEVICES=first, PYTORCH_ALLOC_CONF=conf, PYTORCH_CUDA_ALLOC_CONF=conf)


def shares(found):
    """{allocator: held for a byte asked for} of {allocator: outcome}, where it ran."""
    return {allocator: of["reserved"] / of["requested"] for allocator, of in found.items() if "reserved" in of}


def missed(held):
    """Goals that the shares of a program miss. One whose allocators did not run is not missed."""
    expandable, fixed = held.get(EXPANDABLE, 0), held.get(FIXED, 0)
    goals = {"expandable pool not tightest": expandable > min(held.values(), default=0), "fixed pool over native":
             fixed > held.get(NATIVE, fixed), "expandable pool over 1.02": expandable > 1.02}
    return [goal for goal, is_missed in goals.items() if is_missed]


def table(results):
    """The lines of {program: {allocator: outcome}}, and the status."""
    lines = [f"{'':<23}{'asked, MiB':>11}" + "".join(f"{of:>20}" for of in ALLOCATORS)]
    failures = [f"{program}, {allocator}: {of['error']}" for program, found in results.items()
                for allocator, of in found.items() if "error" in of]
    misses = [program for program, found in results.items() if missed(shares(found))]
    for program, found in results.items():
        held = {allocator: f"{share:.3f}" for allocator, share in shares(found).items()}
        asked = next((f"{of['requested'] / 2**20:,.0f}" for of in found.values() if "requested" in of), "")
        shown = "".join(f"{held.get(of, 'failed' if of in found else ''):>20}" for of in ALLOCATORS)
        lines.append(f"{program:<23}{asked:>11}{shown}  {', '.join(missed(shares(found)))}".rstrip())
    lines += failures + [f"{len(results)} programs, {len(failures)} runs failed, {len(misses)} programs miss a goal"]
    return lines, 2 if failures or not results else 1 if misses else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", metavar="REGEX", help="those whose name has this")
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=ALLOCATORS)
    parser.add_argument("--jobs", type=int, default=3, help="how many run at a time (default 3)")
    parser.add_argument("--seconds", type=float, default=240, help="how long one may take (default 240)")
    parser.add_argument("--small", action="store_const", const=["small"], help="on the CPU, measures nothing")
    parser.add_argument("--record", metavar="FILE", help="appends a line of JSON")
    options = parser.parse_args()
    if options.record and (options.programs or options.small or len(options.allocators) < len(ALLOCATORS)):
        parser.error("--record is of all programs and allocators")
    from programs_of_others import PROGRAMS, torch

    child = __file__.replace("memory_of_programs", "programs_of_others")
    results = {name: {} for name in PROGRAMS if re.search(options.programs, name)}
    # An allocator after the other, so that a large program does not run beside itself.
    runs = [(allocator, name) for allocator in options.small or options.allocators for name in results]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as threads:
        outcomes = threads.map(lambda of: run(["timeout", str(options.seconds), sys.executable, child, of[1], of[0]],
                                              _environment(of[0])), runs)
        for (allocator, name), outcome in zip(runs, outcomes):
            results[name][allocator] = outcome
            print(f"{name}, {allocator}: {outcome}", file=sys.stderr, flush=True)
    lines, status = table(results)
    print("\n".join(lines))
    if options.record is not None:
        comparison.record(options.record, "tools/suites/memory_of_programs.py", {"torch": torch.__version__},
                          {"programs": results})
    return status


if __name__ == "__main__":
    sys.exit(main())
