"""A cache that has all memory of its device, and then a process group, all-to-all's buffers, a second group, cuBLAS and
a graph: who goes on, of each allocator as it is, under `commpool run`, and with headroom. One rank on each GPU, up to
four. The program `commpool` has to be on PATH.

usage: hardware_starve.py [--record FILE] [--tiny]
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

import torch

from hardware_measure import record

PROGRAM = importlib.util.find_spec("starving_ranks").origin
TINY = "--tiny" in sys.argv
HEADROOM = "256MiB" if TINY else "2GiB"
SECONDS = 90
ALLOCATORS = ("native", "expandable", "commpool-fixed", "commpool-expandable")
EXPECTED = "right {world}.0 4096.0 64.0 {after}.0"


def ways():
    """[(name, allocator, words before Python, variables)]."""
    run = [shutil.which("commpool") or "commpool", "run", "--"]
    found = [(allocator, allocator, [], {}) for allocator in ALLOCATORS]
    found += [(f"{allocator} under run", allocator, run, {}) for allocator in ALLOCATORS]
    return found + [(f"{allocator}, headroom", allocator, [], {"COMMPOOL_CONF": f"headroom:{HEADROOM}"})
                    for allocator in ALLOCATORS[2:]]


def outcome(code, said, errors, world):
    """What became of a rank, in words."""
    if code == 0 and said.splitlines()[-1:] == [EXPECTED.format(world=world, after=world + 1)]:
        return "goes on"
    words = [line for line in errors.splitlines() if "out of memory" in line or "Error" in line]
    return f"fails ({code}): {words[-1][:100] if words else errors[-100:]}"


def outcomes(allocator, under, variables, world):
    variables = {**os.environ, **variables}
    if allocator == "expandable":
        variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([*under, sys.executable, "-B", PROGRAM, str(rank), str(world), f"{folder}/store",
                                   allocator], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(world)]
        try:
            return [outcome(rank.returncode, *output, world) for rank, output in
                    ((rank, rank.communicate(timeout=SECONDS)) for rank in ranks)]
        except subprocess.TimeoutExpired:
            return [f"does not end in {SECONDS} s"]
        finally:
            for rank in ranks:
                rank.kill()


def main():
    world = min(4, torch.cuda.device_count())
    found = {}
    for name, allocator, under, variables in ways():
        found[name] = sorted(set(outcomes(allocator, under, variables, world)))
        print(f"{name:30} {world} ranks: {'; '.join(found[name])}", flush=True)
    record("tests/torch/hardware_starve.py", {"ranks": world, "ways": found})
    promised = [name for name in found if "run" in name or "headroom" in name]
    return 0 if all(found[name] == ["goes on"] for name in promised) else 1


if __name__ == "__main__":
    sys.exit(main())
