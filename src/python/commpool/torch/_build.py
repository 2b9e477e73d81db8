"""Compiles the router for the torch that is installed, where the wheel has no binary for it: in seconds, once.

The binary is kept in a private folder (`COMMPOOL_CACHE`, else ~/.cache/commpool) under a name that holds torch's
version, its C++ ABI and a hash of the router's sources.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Iterator, Optional

import torch

from . import _flags

_SEVERAL = "src/adapters/torch/router_all.cc"
_HEADER = "include/commpool/commpool.h"
_CUDA_HEADERS = ("cuda_runtime_api.h", "crt/host_config.h")
_SECONDS = 300  # beyond it the compiler counts as broken


# A router has to throw what torch catches. A compiler whose libraries are not those of torch's process may make one
# that ends the process instead: a process of its own finds that out.
_THROWS = """
import torch, commpool.torch as commpool
pool = commpool.Pool("trial", limit="2MiB")
try:
    with commpool.use_pool(pool):
        torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{pool.device}")
except torch.OutOfMemoryError:
    pass
"""


class CannotBuild(Exception):
    """There is no compiler, no header, or the compiler failed: the message says which."""


def sources() -> Optional[pathlib.Path]:
    """The folder below which the router's sources lie: the wheel's or a checkout's; None where there are none."""
    here = pathlib.Path(__file__).resolve()
    for root in (here.parent / "router", *here.parents[4:5]):
        if (root / _SEVERAL).exists() and (root / _HEADER).exists():
            return root
    return None


def _files(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted([*(root / "src/adapters/torch").glob("*.cc"), *(root / "src/adapters/torch").glob("*.h"),
                   *(root / "include/commpool").glob("*.h")])


def _digest(root: pathlib.Path) -> str:
    digest = hashlib.sha256(" ".join((*_flags.CXX, *_flags.LINK)).encode())
    for path in _files(root):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cxx11_abi() -> int:
    return int(torch.compiled_with_cxx11_abi())


def cached(root: pathlib.Path) -> pathlib.Path:
    """Where the binary for this torch is kept."""
    cache = pathlib.Path(os.environ.get("COMMPOOL_CACHE") or pathlib.Path.home() / ".cache/commpool")
    return cache / "torch" / f"router-{torch.__version__}-abi{_cxx11_abi()}-{_digest(root)}.so"


def _cuda_includes() -> Iterator[pathlib.Path]:
    """Folders with the CUDA headers of torch's own version first: the wheels that torch depends on, then toolkits."""
    packages = pathlib.Path(torch.__file__).resolve().parent.parent
    major = (torch.version.cuda or "13").partition(".")[0]
    yield packages / f"nvidia/cu{major}/include"
    yield packages / "nvidia/cuda_runtime/include"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield pathlib.Path(os.environ[variable]) / "include"
    yield pathlib.Path("/usr/local/cuda/include")
    yield packages / "triton/backends/nvidia/include"


def _cuda_headers() -> pathlib.Path:
    """The first of them with all that torch's headers include: the compiler's part may be a wheel that is not here."""
    for folder in _cuda_includes():
        if all((folder / header).exists() for header in _CUDA_HEADERS):
            return folder
    raise CannotBuild("no folder has both " + " and ".join(_CUDA_HEADERS) + ": install torch's package "
                      "nvidia-cuda-runtime with nvidia-cuda-crt, or set CUDA_HOME")


def _compiler() -> str:
    for name in (os.environ.get("CXX", ""), "g++", "c++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise CannotBuild("there is no C++ compiler (g++, or what CXX names)")


def command(root: pathlib.Path, output: pathlib.Path) -> list[str]:
    """The compiler's command line.

    Raises:
      CannotBuild: a compiler or a header is missing.
    """
    folder = pathlib.Path(torch.__file__).resolve().parent
    cuda = _cuda_headers()
    return [
        _compiler(), *_flags.CXX, f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}", f"-I{root}", f"-I{root / 'include'}",
        "-isystem", str(folder / "include"), "-isystem", str(folder / "include/torch/csrc/api/include"), "-isystem",
        str(cuda), str(root / _SEVERAL), "-o", str(output), *_flags.LINK
    ]


def make_private(folder: pathlib.Path) -> None:
    """Makes a folder that nobody else can put a binary into.

    Raises:
      CannotBuild: it cannot be made, or others may write to it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise CannotBuild(f"{folder}: {error.strerror}; COMMPOOL_CACHE may name another folder") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CannotBuild(f"{folder} is another user's, or others may write to it; COMMPOOL_CACHE may name another "
                          "folder")


def _try_out(router: pathlib.Path) -> None:
    """Refuses a router that ends a process; what else fails there is no fault of the compiler's.

    Raises:
      CannotBuild: with the signal.
    """
    environment = {**os.environ, "COMMPOOL_TORCH_ROUTER": str(router)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    made = f"what {_compiler()} made"
    try:
        run = subprocess.run([sys.executable, "-c", _THROWS], env=environment, capture_output=True, timeout=_SECONDS,
                             check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{made} could not be tried: {error}") from error
    if run.returncode < 0:
        said = run.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        raise CannotBuild(f"{made} ended a process by {signal.Signals(-run.returncode).name} where it had to throw "
                          f"({said[0][:200]}): CXX may name another compiler")


def build() -> pathlib.Path:
    """The binary for this torch, compiled where it is not kept already.

    Raises:
      CannotBuild: with the reason.
    """
    root = sources()
    if root is None:
        raise CannotBuild("this package has no sources of the router")
    kept = cached(root)
    make_private(kept.parent)
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        made = pathlib.Path(folder) / kept.name
        line = command(root, made)
        try:
            run = subprocess.run(line, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuild(f"{line[0]}: {error}") from error
        if run.returncode:
            raise CannotBuild(f"{line[0]} failed: {run.stderr.strip()[:2000]}")
        _try_out(made)
        os.replace(made, kept)  # several processes may build it at once: each finds a whole file
    return kept
