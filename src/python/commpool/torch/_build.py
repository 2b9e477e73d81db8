"""Compiles the router for the torch that is installed, where the wheel has no binary for it: in seconds, once.

The binary is kept in a private folder (`COMMPOOL_CACHE`, else ~/.cache/commpool) under a name that holds torch's
version, its C++ ABI and a hash of the router's sources.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Iterator, Optional

import torch

from commpool import _compile, _flags
from commpool._compile import CannotBuild

_SEVERAL = "src/adapters/torch/router_all.cc"
_HEADER = "include/commpool/commpool.h"
_CUDA_HEADERS = ("cuda_runtime_api.h", "crt/host_config.h")
# A router has to throw what torch catches.
_THROWS = """
import torch, commpool.torch as commpool
pool = commpool.Pool("trial", limit="2MiB")
try:
    with commpool.use_pool(pool):
        torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{pool.device}")
except torch.OutOfMemoryError:
    pass
"""


def sources() -> Optional[pathlib.Path]:
    """The folder below which the router's sources lie: the wheel's or a checkout's; None where there are none."""
    here = pathlib.Path(__file__).resolve()
    for root in (here.parent / "router", *here.parents[4:5]):
        if (root / _SEVERAL).exists() and (root / _HEADER).exists():
            return root
    return None


def _files(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for pattern in ("src/adapters/torch/*.cc", "src/adapters/torch/*.h", "src/pool/scopes/plan.h",
                                       "include/commpool/*.h") for path in root.glob(pattern))


def _digest(root: pathlib.Path) -> str:
    digest = hashlib.sha256(" ".join((*_flags.CXX, *_flags.LINK)).encode())
    for path in _files(root):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cxx11_abi() -> int:
    return int(torch.compiled_with_cxx11_abi())


def cached(root: pathlib.Path) -> pathlib.Path:
    """Where the binary for this torch is kept."""
    return _compile.cache() / "torch" / f"router-{torch.__version__}-abi{_cxx11_abi()}-{_digest(root)}.so"


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


def command(root: pathlib.Path, output: pathlib.Path) -> list[str]:
    """The compiler's command line.

    Raises:
      CannotBuild: a compiler or a header is missing.
    """
    folder = pathlib.Path(torch.__file__).resolve().parent
    cuda = _cuda_headers()
    return [
        _compile.compiler(), *_flags.CXX, f"-D_GLIBCXX_USE_CXX11_ABI={_cxx11_abi()}", f"-I{root}",
        f"-I{root / 'include'}", "-isystem", str(folder / "include"), "-isystem",
        str(folder / "include/torch/csrc/api/include"), "-isystem", str(cuda), str(root / _SEVERAL), "-o", str(output),
        *_flags.LINK
    ]


def build() -> pathlib.Path:
    """The binary for this torch, compiled where it is not kept already.

    Raises:
      CannotBuild: with the reason.
    """
    root = sources()
    if root is None:
        raise CannotBuild("this package has no sources of the router")
    return _compile.once(cached(root), lambda output: command(root, output),
                         lambda made: _compile.try_out(made, _THROWS, "COMMPOOL_TORCH_ROUTER"))
