"""Runs the examples for PyTorch as users start them, over all GPUs (at most 4): what they print, and what they record.

usage: hardware_examples.py [--record FILE] [--tiny]
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch

from hardware_measure import record
from rank_processes import unused_port

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples" / "python"
SECONDS = 90


def run(name, *words, ranks=1):
    """What all ranks of an example print; None where one fails or the time is up."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port(), "WORLD_SIZE": str(ranks)}
    processes = [subprocess.Popen([sys.executable, str(EXAMPLES / name), *words], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    said = []
    try:
        for process in processes:
            said += process.communicate(timeout=SECONDS)[0].splitlines()
    except subprocess.TimeoutExpired:
        said.append(f"not over after {SECONDS} s")
    finally:
        for process in processes:
            process.kill()
    good = all(process.wait() == 0 for process in processes)
    print(f"== {name}, {ranks} ranks: {'ok' if good else 'FAILED'}", *said, sep="\n", flush=True)
    return said if good else None


def recorded(name, ranks):
    """The line of JSON that an example appends to a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "record")
        tiny = ["--tiny"] if "--tiny" in sys.argv else []
        if run(name, "--record", str(file), *tiny, ranks=ranks) is None:
            return None
        return json.loads(file.read_text(encoding="utf-8"))


def row(name, found):
    """A line of the table in tools/bench/results/reference.md."""
    plain, windows = found["plain"], found["windows"]
    unit = "us" if "us" in plain else "ms"
    # Of what windows serve; a few small collectives of the setup's are none of it.
    kind, of = max(windows["collectives"].items(), key=lambda item: item[1]["registrations"].get("window", 0))
    kernels = ", ".join(f"{name} {count}" for name, count in of["kernels"].items())
    before = ", ".join(f"{name} {count}" for name, count in plain["collectives"][kind]["kernels"].items())
    return (f"| `{name}` | {plain[unit]:.2f} {unit} | {windows[unit]:.2f} {unit} | {plain['torch_mib']:.0f} | "
            f"{windows['torch_mib']:.0f} + {windows['pool_mib']:.0f} | {kind}: {before} | {kind}: {kernels} | "
            f"{', '.join(f'{name} {count}' for name, count in of['registrations'].items())} |")


def main():
    ranks = min(2 if "--tiny" in sys.argv else 4, torch.cuda.device_count())
    results = {name: run(name) for name in ("torch/backward.py", "torch/whole_allocator.py", "torch/sleeping.py")}
    if importlib.util.find_spec("cupy"):
        results["torch_and_cupy.py"] = run("torch_and_cupy.py")
    else:
        print("== torch_and_cupy.py: skipped, CuPy is not installed", flush=True)
    if ranks >= 2:
        results |= {name: recorded(name, ranks) for name in ("torch/decode.py", "torch/train.py",
                                                             "torch/train_sharded.py")}
        results["torch/symmetric.py"] = run("torch/symmetric.py", ranks=ranks)
        results["torch/elastic_training.py"] = run("torch/elastic_training.py", "--ranks", str(ranks))
    for name, found in results.items():
        if isinstance(found, dict):
            print(row(name, found), flush=True)
    record("tests/torch/hardware_examples.py", {"ranks": ranks, **results})
    failed = [name for name, said in results.items() if said is None]
    print("every example ran" if not failed else f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
