#!/usr/bin/env python3
"""What compute-sanitizer finds where a kernel writes past a block of a pool, and whether it names the pool.

usage: hardware_overrun.py --program FILE [--sanitizer FILE] [--backing vmm|cuda]...
  --program    tests/nvtx/overrun
  --sanitizer  compute-sanitizer (default: the one that PATH finds)
Prints each run's output and a table. Of cudaMalloc memory the tool is to find every such write; other memory it takes
for one allocation, and must report nothing of it. The exit code is 1 where it found nothing or too much, 77 where there
is no compute-sanitizer.
"""

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys

_POOL = "gradients"
_ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error")


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of the program: its words, and whether the tool finds an error where it knows the pool's blocks."""

    name: str
    mode: str
    size: int
    written: int
    finds: bool
    keep: bool = False


CASES = [
    Case("inside the block", "fixed", 1000, 1000, finds=False),
    Case("past a block with slack", "fixed", 1000, 1100, finds=True),
    Case("past a full block", "fixed", 1024, 1100, finds=True),
    Case("past a full large block", "fixed", 2 << 20, (2 << 20) + 8, finds=True),
    Case("inside the block", "expandable", 1000, 1000, finds=False),
    Case("past a full block", "expandable", 1024, 1100, finds=True),
    Case("blocks never freed", "fixed", 1000, 1000, finds=True, keep=True),
]


def verdict(backing, case, output):
    """What the tool said of one run: ("right" or "wrong", in words)."""
    finds = case.finds and (backing == "cuda" or case.keep)
    counted = _ERRORS.search(output)
    if "the kernel wrote" not in output or counted is None:
        return "wrong", "the program or the tool did not end in order"
    if (int(counted[1]) > 0) != finds:
        return "wrong", "found nothing" if finds else f"found {counted[1]} errors where there is none"
    if not finds:
        return "right", "found nothing"
    return "right", "found, pool named" if names_pool(output) else "found, pool not named"


def names_pool(output):
    """Whether a line of the tool itself names the pool."""
    return any(_POOL in line for line in output.splitlines() if line.startswith("========="))


def run(options, backing, case):
    """The output of one run under the tool."""
    leaks = ["--leak-check", "full"] if case.keep else []
    command = [options.sanitizer, "--tool", "memcheck", "--nvtx", "yes", "--show-backtrace", "no", *leaks,
               options.program, backing, case.mode, str(case.size), str(case.written), *(["keep"] if case.keep else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          check=False)
    return f"$ {' '.join(command)}\n{done.stdout}"


def main(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--sanitizer", default=shutil.which("compute-sanitizer"))
    parser.add_argument("--backing", action="append", choices=["vmm", "cuda"])
    options = parser.parse_args(words)
    if options.sanitizer is None:
        print("skipped: there is no compute-sanitizer")
        return 77
    rows = []
    for backing in options.backing or ["vmm", "cuda"]:
        for case in CASES:
            if backing == "cuda" and case.mode == "expandable":
                continue  # its memory has no pages
            output = run(options, backing, case)
            print(output)
            rows.append((backing, case.mode, case.name, *verdict(backing, case, output)))
    print(f"{'backing':8} {'mode':11} {'the kernel writes':26} {'':6} the tool")
    for backing, mode, name, judged, words in rows:
        print(f"{backing:8} {mode:11} {name:26} {judged:6} {words}")
    return 1 if any(row[3] == "wrong" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
