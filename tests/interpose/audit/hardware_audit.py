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


def train(options, *words, audited=True):
    """The output of one training; its ranks' lines begin with "result ", and have JSON."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
    audit = [options.commpool, "audit", "--by", options.by, "--record", options.audit] if audited else []
    command = [*audit, *(["--"] if audited else []), *torchrun, str(_TRAINING), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("result ")]
    return sorted(results, key=lambda result: result["rank"]), done


def print_steps(steps):
    for step in steps:
        print("rank {rank} {reason}: {used:.1f} MiB more in use, {attributed:.1f} attributed, {rest:.1f} not: {verdict}"
              .format(**step))


def check_memory(options):
    """Arrays and a graph that allocates, in a process without torch."""
    pathlib.Path(options.audit).unlink(missing_ok=True)
    command = [options.commpool, "audit", "--by", options.by, "--record", options.audit, "--", sys.executable, _MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    print(done.stderr[-6000:])
    if done.returncode != 0:
        sys.exit(f"{_MEMORY} failed ({done.returncode})")
    lines = records.read(options.audit)
    steps = records.steps(lines)
    print_steps(steps)
    wrong = records.wrong_memory(lines)
    for sentence in wrong:
        print(sentence)
    return {"seen": lines[-1]["seen"], "steps": steps, "wrong": wrong}


def check_steps(options):
    """Every step of every rank: attributed and used."""
    pathlib.Path(options.audit).unlink(missing_ok=True)
    _, done = train(options, "--steps", "6", "--report")
    lines = records.read(options.audit)
    steps = records.steps(lines)
    print(done.stderr[-6000:])
    print_steps(steps)
    rows = [line["rows"] for line in lines if line["reason"] == "exit"]
    return {"seen": lines[-1]["seen"], "steps": steps, "rows": rows}


def measure(options):
    """The ratios of a step's time with and without, a pair each, in rounds of with, without, without, with. The batches
    keep the GPU busy: where a step waits for the host, processes differ by 10 % whatever they do."""
    medians = {True: [], False: []}
    for _ in range(options.rounds):
        for audited in (True, False, False, True):
            results, _ = train(options, "--steps", "60", "--batch", "16", "--length", "1024", audited=audited)
            medians[audited].append(max(result["median_ms"] for result in results))
            print(f"{'with' if audited else 'without'} an audit: {medians[audited][-1]:.3f} ms a step")
    ratios = [audited / plain for audited, plain in zip(medians[True], medians[False])]
    return {"with_ms": medians[True], "without_ms": medians[False], "ratio": statistics.median(ratios),
            "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commpool", required=True, type=os.path.abspath)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--by", choices=("cupti", "preload"), default="cupti")
    parser.add_argument("--parts", default="memory,steps,profiler,times")
    parser.add_argument("--record")
    options = parser.parse_args()
    options.parts = options.parts.split(",")
    if options.ranks is None:
        options.ranks = min(torch.cuda.device_count(), 2)
    with tempfile.TemporaryDirectory() as folder:
        options.audit = os.path.join(folder, "audit.jsonl")
        found = {}
        if "memory" in options.parts:
            found["memory"] = check_memory(options)
        if "steps" in options.parts:
            found["steps"] = check_steps(options)
        if "profiler" in options.parts:
            profiled, _ = train(options, "--steps", "4", "--profile")
            found["profiler"] = profiled[0]["profiler"]
            print(f"torch.profiler, started later: {found['profiler']}")
        if "times" in options.parts:
            found["times"] = measure(options)
            print(f"a step takes {found['times']['ratio']:.4f} times as long")
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
