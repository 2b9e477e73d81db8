#!/usr/bin/env python3
"""Compiles commpool.torch's binary for a version of torch, to load wherever that torch does; tools/wheel calls it.

usage: torch_router.py --source REPOSITORY --torch DIR --older DIR --cuda DIR --output DIR [--check]
  --torch   a wheel of torch, or an unpacked one: the folder that holds torch/include, torch/lib and torch/version.py
  --older   the stand-ins for system libraries: see tools/bazel/portable
  --cuda    CUDA's headers
  --check   fails where the binary asks for what torch's own libraries do not, or does not load with them; CUDA's
            runtime is looked for beside torch and in LD_LIBRARY_PATH
Prints VERSION=FILE.
"""

import argparse
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import zipfile

import portability

_SOURCE = "src/torch/router_all.cc"
_NEWER = "tools/bazel/portable/newer_functions.c"
_FLAGS = "src/python/commpool/_flags.py"
_TORCHS_OWN = ("libc10_cuda.so", "libc10.so")
# The files of a wheel that the binary is compiled and checked against.
_WANTED = re.compile(r"torch/(?:version\.py|include/.*|lib/libc10(?:_cuda)?\.so)$")


def unpack(wheel, folder):
    """Unpacks the needed files of a torch wheel; returns their folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if _WANTED.match(name)])
    return folder


def version(torch):
    """"2.11", of the folder's torch/version.py."""
    text = (torch / "torch/version.py").read_text(encoding="utf-8")
    found = re.search(r"__version__ = '(\d+\.\d+)\.", text)
    if not found:
        raise ValueError(f"{torch}/torch/version.py tells no version")
    return found.group(1)


def _link(older):
    """As portable.bzl: stand-ins first, and from the archive what libstdc++ got later. CUDA's runtime is torch's."""
    files = [str(older / name) for name in ("libm.so.6", "libdl.so.2", "libpthread.so.0", "libc.so.6")]
    return ["-Wl,--allow-shlib-undefined", "-Wl,--as-needed", str(older / "libstdc++.so.6"),
            "-l:libstdc++.a", "-Wl,--exclude-libs,libstdc++.a", *files]


def build(options):
    """Compiles; returns the binary."""
    output = options.output / f"libcommpool_torch_{version(options.torch)}.so"
    source, torch = options.source, options.torch / "torch"
    flags = runpy.run_path(str(source / _FLAGS))
    newer = output.with_suffix(".newer.o")
    subprocess.run(["gcc", *flags["COMPILE"], "-c", str(source / _NEWER), "-o", str(newer)], check=True)
    headers = [torch / "include", torch / "include/torch/csrc/api/include", options.cuda]
    # Messages contain header names: the bytes must not depend on where torch lies.
    command = ["g++", *flags["CXX"], f"-ffile-prefix-map={options.torch}/=", f"-I{source}", f"-I{source / 'include'}",
               *(f"-isystem{folder}" for folder in headers), str(source / _SOURCE), str(newer), "-o", str(output),
               *flags["LINK"], *_link(options.older)]
    subprocess.run(command, check=True)
    subprocess.run(["strip", "--strip-unneeded", str(output)], check=True)
    newer.unlink()
    return output


def _numbers(text):
    return tuple(int(part) for part in text.split("."))


def newer_than_torchs(binary, torch):
    """A line for each version node where the binary needs a newer version than torch's own libraries."""
    own = {}
    for name in (*_TORCHS_OWN, "libtorch_cpu.so", "libtorch_python.so"):
        file = torch / "torch/lib" / name
        for node, newest in (portability.newest_versions(file) if file.exists() else {}).items():
            own[node] = max(own.get(node, newest), newest, key=_numbers)
    return portability.too_new(binary, {**portability.OLDEST, **own})


def asks_for_torchs(binary):
    """A line for each library of torch that the loader would search: no system of a tag has it."""
    return [f"{binary.name} needs {name}" for name in portability.needed(binary) if name in _TORCHS_OWN]


def does_not_load(binary, torch):
    """The loader's error when it resolves every symbol of the binary; empty where it loads."""
    # A process with torch has CUDA's runtime and, through the package, torch's own libraries. 2 is RTLD_NOW.
    known = [_cuda_runtime(torch), *(name for name in _TORCHS_OWN if (torch / "torch/lib" / name).exists())]
    program = f"import ctypes, os, sys\nfor name in {known}: ctypes.CDLL(name, os.RTLD_GLOBAL | os.RTLD_NOW)\n" \
              "ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    folders = [torch / "torch/lib", *sorted((torch / "nvidia").glob("*/lib"))]
    path = ":".join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")])
    result = subprocess.run([sys.executable, "-c", program, str(binary)], capture_output=True, text=True, check=False,
                            env={**os.environ, "LD_LIBRARY_PATH": path})
    return "" if result.returncode == 0 else result.stderr.strip().splitlines()[-1]


def _cuda_runtime(torch):
    return next(name for name in portability.needed(torch / "torch/lib/libc10_cuda.so") if "cudart" in name)


def main():
    parser = argparse.ArgumentParser()
    for option in ("--source", "--torch", "--older", "--cuda", "--output"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.torch.is_file():
            options.torch = unpack(options.torch, pathlib.Path(work))
        binary = build(options)
        if options.check:
            refused = does_not_load(binary, options.torch)
            found = newer_than_torchs(binary, options.torch) + portability.misplaced(binary) + asks_for_torchs(binary)
            found += [refused] if refused else []
            if found:
                sys.exit(f"the binary for torch {version(options.torch)}:\n" + "\n".join(found))
        print(f"{version(options.torch)}={binary}")


if __name__ == "__main__":
    main()
