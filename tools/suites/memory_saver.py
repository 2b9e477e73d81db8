#!/usr/bin/env python3
"""Runs torch_memory_saver's public examples over pools of ours, with nothing but the import changed.

    PYTHON tools/suites/memory_saver.py --source DIR [EXAMPLE ...]

DIR is a checkout of torch_memory_saver 0.0.10; nothing of it is here. Each example runs in a process of its own, in
both modes where it asks for one; PYTHON has torch and commpool. Those for preloading cannot: they save memory that
nobody made in a region. The status is 0 where all pass.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import pathlib
import subprocess
import sys
import types

EXAMPLES = {"simple": ["torch"], "cuda_graph": ["torch", "preload"], "cpu_backup": ["torch"], "disk_backup": ["torch"],
            "rl_example": ["torch"], "multi_device": ["torch"], "multi_device_torch_mode": ["torch"]}


def stand_in(source):
    """The package by its name: ours, except for the modules that its own tests share."""
    from commpool.torch.dropins import torch_memory_saver

    package = types.ModuleType("torch_memory_saver")
    package.__path__ = [str(source / "torch_memory_saver")]
    package.torch_memory_saver = torch_memory_saver
    # What `cpu_backup` does with insides of theirs: it drops a region's pool, and asks CUDA of an address.
    torch_memory_saver._impl = types.SimpleNamespace(
        _mem_pools=torch_memory_saver._pools, _with_region_config=lambda **_: contextlib.nullcontext(),
        _binary_wrapper=types.SimpleNamespace(cdll=ctypes.CDLL("libcudart.so.13")))
    sys.modules["torch_memory_saver"] = package


def run_one(source, name, mode):
    """In this process."""
    import torch  # noqa: F401  it loads the runtime

    stand_in(source)
    spec = importlib.util.spec_from_file_location(name, source / "test" / "examples" / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.run(hook_mode=mode)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True, metavar="DIR", help="the checkout")
    parser.add_argument("--mode", choices=["torch", "preload"], help=argparse.SUPPRESS)  # of one, in this process
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"default: {', '.join(EXAMPLES)}")
    options = parser.parse_args()
    if options.mode:
        run_one(options.source, options.examples[0], options.mode)
        return 0
    failed = 0
    for name in options.examples or EXAMPLES:
        for mode in EXAMPLES[name]:
            run = subprocess.run([sys.executable, __file__, "--source", options.source, "--mode", mode, name],
                                 capture_output=True, text=True, check=False)
            print(f"{name} ({mode}): {'passed' if run.returncode == 0 else 'FAILED'}", flush=True)
            if run.returncode != 0:
                failed += 1
                print(run.stdout[-2000:], run.stderr[-4000:], sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
