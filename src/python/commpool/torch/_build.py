"""Compiles the router for the torch that is installed, where the wheel has no binary for it: in seconds, once.

The binary is kept in a private folder (`COMMPOOL_CACHE`, else ~/.cache/commpool) under a name that holds torch's
version, its C++ ABI and a hash of the router's sources.
"""

from __future__ import annotations

import pathlib
from typing import Optional

import torch

from commpool import _compile
from commpool._compile import CannotBuild

_SEVERAL = "src/adapters/torch/router_all.cc"
_HEADER = "include/commpool/commpool.h"
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


def build() -> pathlib.Path:
    """The binary for this torch, compiled where it is not kept already.

    Raises:
      CannotBuild: with the reason.
    """
    root, folder = sources(), pathlib.Path(torch.__file__).resolve().parent
    if root is None:
        raise CannotBuild("this package has no sources of the router")
    cxx11_abi = int(torch.compiled_with_cxx11_abi())

    def command() -> list[str]:
        cuda = _compile.cuda_headers(folder.parent, (torch.version.cuda or "13").partition(".")[0])
        system = (folder / "include", folder / "include/torch/csrc/api/include", cuda)
        return [f"-D_GLIBCXX_USE_CXX11_ABI={cxx11_abi}", f"-I{root}", f"-I{root / 'include'}",
                *(f"-isystem{path}" for path in system), str(root / _SEVERAL)]

    return _compile.built(f"torch/router-{torch.__version__}-abi{cxx11_abi}", _files(root), command, _THROWS,
                          "COMMPOOL_TORCH_ROUTER")
