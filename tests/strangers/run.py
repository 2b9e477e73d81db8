#!/usr/bin/env python3
"""Runs programs over public packages under `commpool emulate`, and on the CPU: PYTHON run.py [NAME...].

PYTHON has torch 2.15. The packages of packages.txt come from its registry, once, to --packages. A row: a program, its
ranks, its seconds on the emulator, the broken rules that it reported, and whether its result is the CPU's: equal to the
last digit, or near, within --tolerance (autocast, sums in another order). Exit code 1 where one failed or is
neither; what was reported is yours to judge, and is printed.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

_HERE = pathlib.Path(__file__).resolve().parent
_ALONE = ["mixtral", "t5", "vit", "lora_with_checkpoints", "generate", "graph", "trainer", "timm_resnet", "timm_vit",
          "detection", "graphs_of_nodes", "compile_eager", "compile_aot_eager", "compile_cudagraphs",
          "layers_on_the_host"]
_RANKS = {"llama_ddp": 4, "llama_fsdp2": 4, "accelerate_fsdp2": 2, "lightning_ddp": 2, "titan": 2,
          "torchrec_pipeline": 2, "torchrec_fused_pipeline": 2}
_ON_GPUS_ALONE = ("accelerate_fsdp2", "titan")  # they ask for a GPU
_BESIDE_A_DRIVER = ("torchrec_pipeline", "torchrec_fused_pipeline")  # fbgemm_gpu loads NVIDIA's libraries


def install(folder):
    done = folder / "packages.txt"
    wanted = (_HERE / "packages.txt").read_text(encoding="utf-8")
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target",
                        str(folder), "--requirement", str(_HERE / "packages.txt")], check=True)
        done.write_text(wanted, encoding="utf-8")


def start(name, device, options):
    """The result that it printed, or None; the lines of broken rules; the seconds."""
    ranks = _RANKS.get(name)
    before = [options.commpool, "emulate", "--"] if device == "cuda" or name in _BESIDE_A_DRIVER else []
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    program = _HERE / ("ranks.py" if ranks else "programs.py")
    begin = time.monotonic()
    run = subprocess.run([*before, sys.executable, *launcher, str(program), name, device], capture_output=True,
                         text=True, timeout=options.timeout, check=False,
                         env={**os.environ, "PYTHONPATH": str(options.packages), "OMP_NUM_THREADS": "1",
                              "COMMPOOL_EMULATOR": f"devices={ranks or 1}"})
    results = [line.split()[1] for line in run.stdout.splitlines() if line.startswith(name + " ")]
    if run.returncode or not results:
        print(run.stderr[-2000:], file=sys.stderr)
        results = [None]
    rules = [line for line in run.stderr.splitlines() if "broken rule" in line]
    return results[-1], rules, time.monotonic() - begin


def judged(name, found, options):
    if found is None:
        return "failed"
    if name in _ON_GPUS_ALONE:
        return "ran"
    wanted, _, _ = start(name, "cpu", options)
    if found == wanted:
        return "equal"
    near = wanted is not None and abs(float(found) - float(wanted)) <= options.tolerance * abs(float(wanted))
    return "near" if near else f"{found}, not {wanted}"


def main():
    parser = argparse.ArgumentParser(description="Runs programs over public packages on the emulator.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--commpool", default="commpool")
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path.home() / ".cache/commpool/strangers")
    parser.add_argument("--tolerance", type=float, default=2e-2)
    parser.add_argument("--timeout", type=float, default=400)
    options = parser.parse_args()
    install(options.packages)
    wrong = 0
    print(f"{'program':24} ranks seconds reports result")
    for name in options.names or [*_ALONE, *_RANKS]:
        found, rules, seconds = start(name, "cuda", options)
        result = judged(name, found, options)
        wrong += result not in ("equal", "near", "ran")
        print(f"{name:24} {_RANKS.get(name, 1):5} {seconds:7.1f} {len(rules):7} {result}", *rules[:2], sep="\n  ",
              flush=True)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
