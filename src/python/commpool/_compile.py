"""Compiles binaries with the user's compiler for what is installed. Each is tried first, and kept in a private folder.

A folder is private where nobody else can put a binary into it: `COMMPOOL_CACHE`, else ~/.cache/commpool.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from typing import Callable, Iterable, Optional, Sequence

from . import _flags

_SECONDS = 300  # after that the compiler counts as broken

logger = logging.getLogger("commpool")


class CannotBuild(Exception):
    """A header or the compiler is missing, the compiler failed, or its binary is unfit: the message says which."""


def cache() -> pathlib.Path:
    """The folder that keeps the binaries."""
    return pathlib.Path(os.environ.get("COMMPOOL_CACHE") or pathlib.Path.home() / ".cache/commpool")


def compiler() -> str:
    """The C++ compiler.

    Raises:
      CannotBuild: there is none.
    """
    for name in (os.environ.get("CXX", ""), "g++", "c++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise CannotBuild("there is no C++ compiler (g++, or what CXX names)")


def _check_nobody_else_writes(folder: pathlib.Path, within: bool) -> None:
    """Refuses a folder that others may change. `within`: it is enough that nobody else changes our files in it (/tmp).

    Raises:
      CannotBuild: others may.
    """
    found = folder.stat()
    # in a namespace root may have another number
    ours = (os.getuid(), 0, os.stat("/").st_uid) if within else (os.getuid(),)
    kept_apart = within and found.st_mode & stat.S_ISVTX
    if found.st_uid not in ours or (found.st_mode & 0o022 and not kept_apart):
        raise CannotBuild(f"{folder} is another user's, or others may write to it; COMMPOOL_CACHE may name another "
                          "folder")


def make_private(folder: pathlib.Path) -> pathlib.Path:
    """Makes a private folder, and the missing folders above it. Nobody else can put a binary into it, or replace it by
    another folder. Returns its path without symbolic links, because others might change a link later.

    Raises:
      CannotBuild: it cannot be made, or others may write to it or above it.
    """
    try:
        folder = pathlib.Path(os.path.realpath(folder))
        for each in (*reversed(folder.parents), folder):
            if not each.is_dir():
                with contextlib.suppress(FileExistsError):
                    each.mkdir(mode=0o700)
            _check_nobody_else_writes(each, within=each != folder)
    except OSError as error:
        raise CannotBuild(f"{folder}: {error.strerror}; COMMPOOL_CACHE may name another folder") from error
    return folder


def _run(what: str, line: list[str],
         environment: Optional[dict[str, str]] = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(line, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{what}: {error}") from error


def try_out(made: pathlib.Path, program: str, variable: str) -> None:
    """Tries a binary in a process of its own, where `variable` names it, and refuses the binary if that process dies.
    Other failures there are not the compiler's fault. If the compiler's libraries are not those of the process, the
    binary may be unable to throw.

    Raises:
      CannotBuild: with the signal.
    """
    environment = {**os.environ, variable: str(made), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                   "COMMPOOL_RECORD": ""}  # it is no rank of the program's
    by = f"what {compiler()} made"
    run = _run(f"{by} could not be tried", [sys.executable, "-c", program], environment)
    if run.returncode < 0:
        said = run.stderr.strip().splitlines()[-1:] or ["without a word"]
        raise CannotBuild(f"{by} ended a process by {signal.Signals(-run.returncode).name} where it had to throw "
                          f"({said[0][:200]}): CXX may name another compiler")


def _cuda_includes(packages: pathlib.Path, major: str) -> list[pathlib.Path]:
    """Wheels beside the framework come first, because they have its version; then toolkits."""
    toolkits = [pathlib.Path(os.environ[variable]) / "include" for variable in ("CUDA_HOME", "CUDA_PATH")
                if os.environ.get(variable)]
    return [*packages.glob(f"nvidia/cu{major}/include"), packages / "nvidia/cuda_runtime/include", *toolkits,
            pathlib.Path("/usr/local/cuda/include"), packages / "triton/backends/nvidia/include"]


def cuda_headers(packages: pathlib.Path, major: str = "1*") -> pathlib.Path:
    """The first folder with all headers that CUDA's runtime header includes. The wheel with the compiler's headers may
    be missing.

    Raises:
      CannotBuild: there is none.
    """
    return first_with("install the package nvidia-cuda-runtime with nvidia-cuda-crt, or set CUDA_HOME",
                      _cuda_includes(packages, major), "cuda_runtime_api.h", "crt/host_config.h")


def first_with(otherwise: str, folders: Sequence[pathlib.Path], *headers: str) -> pathlib.Path:
    """The first folder that has all the headers.

    Raises:
      CannotBuild: there is none; the message says what to do `otherwise`.
    """
    for folder in folders:
        if all((folder / header).exists() for header in headers):
            return folder
    raise CannotBuild(f"no folder has {' and '.join(headers)}: {otherwise}")


def built(name: str, sources: Iterable[pathlib.Path], command: Callable[[], list[str]], program: str,
          variable: str) -> pathlib.Path:
    """Returns the binary of the sources, which the cache keeps as `name` and a hash. Compiles and tries it if it is
    missing.

    Args:
      name: what it is compiled for.
      sources: the files to compile; they make the hash.
      command: the middle of the compiler's command line.
      program: the program for the trial, as for `try_out`.
      variable: names the binary in the trial.

    Raises:
      CannotBuild: with the reason.
    """
    digest = hashlib.sha256(" ".join((*_flags.CXX, *_flags.LINK)).encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    kept = cache() / f"{name}-{digest.hexdigest()[:16]}.so"
    kept = make_private(kept.parent) / kept.name
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = pathlib.Path(folder) / kept.name
        line = [compiler(), *_flags.CXX, *command(), "-o", str(made), *_flags.LINK]
        logger.warning("%s compiles %s once, which takes some seconds; %s keeps it", line[0], name, kept.parent)
        run = _run(line[0], line)
        if run.returncode:
            raise CannotBuild(f"{line[0]} failed: {run.stderr.strip()[:2000]}")
        try_out(made, program, variable)
        os.replace(made, kept)  # several processes may build it at once: each finds a whole file
    return kept
