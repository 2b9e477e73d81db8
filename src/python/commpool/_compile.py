"""Binaries that the user's compiler makes for what is installed: once, kept in a private folder, and tried first.

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

_SECONDS = 300  # beyond it the compiler counts as broken

logger = logging.getLogger("commpool")


class CannotBuild(Exception):
    """A header or the compiler is missing, the compiler failed, or what it made is unfit: the message says which."""


def cache() -> pathlib.Path:
    """Below which binaries are kept."""
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
    """`within`: whether it is enough that nobody else changes what is ours in it, as in /tmp.

    Raises:
      CannotBuild: others may.
    """
    found = folder.stat()
    ours = (os.getuid(), 0, os.stat("/").st_uid) if within else (os.getuid(),)  # root has another number in a namespace
    kept_apart = within and found.st_mode & stat.S_ISVTX
    if found.st_uid not in ours or (found.st_mode & 0o022 and not kept_apart):
        raise CannotBuild(f"{folder} is another user's, or others may write to it; COMMPOOL_CACHE may name another "
                          "folder")


def make_private(folder: pathlib.Path) -> pathlib.Path:
    """Makes a folder that nobody else can put a binary into, nor another folder into its place, and those above it that
    are missing. Returns it without symbolic links, which others might change later.

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
    """Refuses a binary that ends a process of its own, in which `variable` names it; what else fails there is no fault
    of the compiler's. A compiler whose libraries are not those of the process may make one that cannot throw.

    Raises:
      CannotBuild: with the signal.
    """
    environment = {**os.environ, variable: str(made), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    by = f"what {compiler()} made"
    run = _run(f"{by} could not be tried", [sys.executable, "-c", program], environment)
    if run.returncode < 0:
        said = run.stderr.strip().splitlines()[-1:] or ["without a word"]
        raise CannotBuild(f"{by} ended a process by {signal.Signals(-run.returncode).name} where it had to throw "
                          f"({said[0][:200]}): CXX may name another compiler")


def _cuda_includes(packages: pathlib.Path, major: str) -> list[pathlib.Path]:
    """Wheels beside the framework first, since they are of its version, then toolkits."""
    toolkits = [pathlib.Path(os.environ[variable]) / "include" for variable in ("CUDA_HOME", "CUDA_PATH")
                if os.environ.get(variable)]
    return [*packages.glob(f"nvidia/cu{major}/include"), packages / "nvidia/cuda_runtime/include", *toolkits,
            pathlib.Path("/usr/local/cuda/include"), packages / "triton/backends/nvidia/include"]


def cuda_headers(packages: pathlib.Path, major: str = "1*") -> pathlib.Path:
    """The first folder with all that CUDA's runtime header includes: the compiler's part may be a wheel that is not
    here.

    Raises:
      CannotBuild: there is none.
    """
    return first_with("install the package nvidia-cuda-runtime with nvidia-cuda-crt, or set CUDA_HOME",
                      _cuda_includes(packages, major), "cuda_runtime_api.h", "crt/host_config.h")


def first_with(otherwise: str, folders: Sequence[pathlib.Path], *headers: str) -> pathlib.Path:
    """The first of folders that has all the headers.

    Raises:
      CannotBuild: there is none, and what to do `otherwise`.
    """
    for folder in folders:
        if all((folder / header).exists() for header in headers):
            return folder
    raise CannotBuild(f"no folder has {' and '.join(headers)}: {otherwise}")


def built(name: str, sources: Iterable[pathlib.Path], command: Callable[[], list[str]], program: str,
          variable: str) -> pathlib.Path:
    """The binary of sources, below the cache as `name` and a hash: compiled where it is not kept already, and tried.

    Args:
      name: says what it was compiled for.
      sources: what it is compiled of, for the hash.
      command: the compiler's command line, without its beginning and its end.
      program: what a process of its own runs, as `try_out` has it.
      variable: names the binary there.

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
