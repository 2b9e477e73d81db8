#!/usr/bin/env python3
"""A training of a Hugging Face model under `commpool audit`, on one GPU or more: what is attributed beside what the
driver says, what a step takes with and without an audit, and torch.profiler beside it.

usage: hardware_audit.py --commpool FILE [--ranks N] [--rounds N] [--by cupti|preload] [--record FILE]
  --commpool   the program of an install tree
  --ranks      processes, one a GPU (default: as many as there are GPUs, at most 2)
  --rounds     of with, without, without, with (default 2)
Needs torch and transformers. The exit code is 1 where a rank's step leaves too much unattributed, or a step is slower.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import hardware_audit_records as records

_TRAINING = pathlib.Path(__file__).with_name("hardware_audit_training.py")


def train(options, *words, audited=True, **variables):
    """The output of one training; its ranks' lines begin with "result ", and have JSON."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
    audit = [options.commpool, "audit", "--by", options.by, "--record", options.audit] if audited else []
    command = [*audit, *(["--"] if audited else []), *torchrun, str(_TRAINING), *words]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    results = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("result ")]
    return sorted(results, key=lambda result: result["rank"]), done


def check_steps(options):
    """Every step of every rank: attributed and used."""
    pathlib.Path(options.audit).unlink(missing_ok=True)
    results, done = train(options, "--steps", "6", "--report")
    lines = records.read(options.audit)
    steps = records.steps(lines)
    print(done.stderr[-6000:])
    for step in steps:
        print("rank {rank} {reason}: {used:.1f} MiB more in use, {attributed:.1f} attributed, {rest:.1f} not: {verdict}"
              .format(**step))
    return {"seen": lines[-1]["seen"], "torch": results[0]["torch"], "device": results[0]["device"],
            "steps": steps, "rows": [line["rows"] for line in lines if line["reason"] == "exit"]}


def measure(options):
    """The ratios of a step's time with and without, a pair each, in rounds of with, without, without, with."""
    medians = {True: [], False: []}
    for _ in range(options.rounds):
        for audited in (True, False, False, True):
            results, _ = train(options, "--steps", "60", audited=audited)
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
    parser.add_argument("--record")
    options = parser.parse_args()
    if options.ranks is None:
        import torch
        options.ranks = min(torch.cuda.device_count(), 2)
    with tempfile.TemporaryDirectory() as folder:
        options.audit = os.path.join(folder, "audit.jsonl")
        found = check_steps(options)
        profiled, _ = train(options, "--steps", "4", "--profile")
        found["profiler"] = profiled[0]["profiler"]
        print(f"torch.profiler, started later: {found['profiler']}")
        found["times"] = measure(options) if options.rounds else None
    if found["times"]:
        print(f"a step takes {found['times']['ratio']:.4f} times as long")
    if options.record:
        with open(options.record, "a", encoding="utf-8") as file:
            file.write(json.dumps({"command": " ".join(sys.argv), "results": found}) + "\n")
    wrong = [step for step in found["steps"] if step["verdict"] != "right"]
    slower = found["times"] is not None and found["times"]["ratio"] > 1.01
    sys.exit(1 if wrong or slower or not found["steps"] else 0)


if __name__ == "__main__":
    main()
