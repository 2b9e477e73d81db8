#!/usr/bin/env python3
"""A training of a Hugging Face model under `commpool audit`, on one GPU or more: what is attributed beside what the
driver says, what a step takes with and without an audit, and torch.profiler beside it.

usage: hardware_audit.py --commpool FILE [--ranks N] [--rounds N] [--by cupti|preload] [--parts PART,...]
                         [--record FILE]
  --commpool   the program of an install tree
  --ranks      processes, one a GPU (default: as many as there are GPUs, at most 2)
  --rounds     of with, without, without, with (default 2)
  --parts      of memory, steps, profiler, times (default all)
Needs torch and transformers. The exit code is 1 where a rank's step leaves too much unattributed, or a step is slower.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch

import hardware_audit_records as records

_TRAINING = pathlib.Path(__file__).with_name("hardware_audit_training.py")
_MEMORY = pathlib.Path(__file__).with_name("hardware_audit_memory.py")


def run(options, command, audited=True):
    """The finished command; it must succeed."""
    audit = [options.commpool, "audit", "--by", options.by, "--record", options.audit, "--"] if audited else []
    command = [str(word) for word in (*audit, sys.executable, *command)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    return done


def training(options, *words):
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}", _TRAINING, *words]


def train(options, *words, audited=True):
    """What the ranks of one training tell: their lines begin with "result ", and have JSON."""
    done = run(options, training(options, *words), audited)
    results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("result ")]
    return sorted(results, key=lambda result: result["rank"])


def check_steps(options, command):
    """Every step of every rank: attributed and used. The lines of the record too."""
    pathlib.Path(options.audit).unlink(missing_ok=True)
    print(run(options, command).stderr[-6000:])
    lines = records.read(options.audit)
    steps = records.steps(lines)
    for step in steps:
        print("rank {rank} {reason}: {used:.1f} MiB more in use, {attributed:.1f} attributed, {rest:.1f} not: {verdict}"
              .format(**step))
    return {"seen": lines[-1]["seen"], "steps": steps}, lines


def check_memory(options):
    """Arrays and a graph that allocates, in a process without torch."""
    found, lines = check_steps(options, [_MEMORY])
    wrong = records.wrong_memory(lines)
    print("\n".join(wrong))
    return {**found, "wrong": wrong}


def check_training(options):
    found, lines = check_steps(options, training(options, "--steps", "6", "--report"))
    return {**found, "rows": [line["rows"] for line in lines if line["reason"] == "exit"]}


def measure(options):
    """The ratios of a step's time with and without, a pair each, in rounds of with, without, without, with. The batches
    keep the GPU busy: where a step waits for the host, processes differ by 10 % whatever they do."""
    medians = {True: [], False: []}
    for _ in range(options.rounds):
        for audited in (True, False, False, True):
            results = train(options, "--steps", "60", "--batch", "16", "--length", "1024", audited=audited)
            medians[audited].append(max(result["median_ms"] for result in results))
            print(f"{'with' if audited else 'without'} an audit: {medians[audited][-1]:.3f} ms a step")
    ratios = [audited / plain for audited, plain in zip(medians[True], medians[False])]
    print(f"a step takes {statistics.median(ratios):.4f} times as long")
    return {"with_ms": medians[True], "without_ms": medians[False], "ratio": statistics.median(ratios),
            "ratios": ratios}


def profile(options):
    seen = train(options, "--steps", "4", "--profile")[0]["profiler"]
    print(f"torch.profiler, started later: {seen}")
    return seen


_PARTS = {"memory": check_memory, "steps": check_training, "profiler": profile, "times": measure}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commpool", required=True, type=os.path.abspath)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--by", choices=("cupti", "preload"), default="cupti")
    parser.add_argument("--parts", default=",".join(_PARTS))
    parser.add_argument("--record")
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    if options.ranks is None:
        options.ranks = min(torch.cuda.device_count(), 2)
    with tempfile.TemporaryDirectory() as folder:
        options.audit = os.path.join(folder, "audit.jsonl")
        found = {part: act(options) for part, act in _PARTS.items() if part in options.parts}
    if options.record:
        with open(options.record, "a", encoding="utf-8") as file:
            date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            machine = {"device": torch.cuda.get_device_name(0), "devices": options.ranks, "torch": torch.__version__}
            command = (f"hardware_audit.py --ranks {options.ranks} --rounds {options.rounds} --by {options.by} "
                       f"--parts {','.join(options.parts)}")
            file.write(json.dumps({"command": command, "date": date, "machine": machine, "results": found},
                                  sort_keys=True) + "\n")
    wrong = any(part in found and not records.all_right(found[part]["steps"]) for part in ("memory", "steps"))
    wrong = wrong or bool(found.get("memory", {}).get("wrong"))
    slower = "times" in found and found["times"]["ratio"] > 1.01
    sys.exit(1 if wrong or slower else 0)


if __name__ == "__main__":
    main()
