"""The router's binary: finds or compiles it, refuses one for another torch, and binds its functions.

If the wheel has none for the installed torch, it is compiled: in seconds, once. A private folder (`COMMPOOL_CACHE`,
else ~/.cache/commpool) keeps it; its name has torch's version, torch's C++ ABI and a hash of the router's sources.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from typing import Any, Optional

import torch

from commpool import _abi, _compile, _flags, errors
from commpool._library import fast, for_ever

_VARIABLE = "COMMPOOL_TORCH_ROUTER"
_PREFIX = "commpool_torch_"  # of the functions of surface.h
_OLDEST = (2, 9)
_TORCH = pathlib.Path(torch.__file__).resolve().parent
_SEVERAL = "src/torch/router_all.cc"
_HEADER = "include/commpool/commpool.h"
# A router must throw what torch catches.
_THROWS = """
import torch, commpool.torch as commpool
pool = commpool.Pool("trial", limit="2MiB")
try:
    with commpool.use_pool(pool):
        torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{pool.device}")
except torch.OutOfMemoryError:
    pass
"""


def version_of_torch() -> str:
    """Such as "2.11": the torch that a binary is for."""
    return ".".join(torch.__version__.split(".")[:2])


class Router:
    """The functions of a router's binary, named as in surface.h without their prefix."""

    def __init__(self, path: pathlib.Path) -> None:
        """Loads it.

        Raises:
          errors.NotSupported: it is for another torch, or cannot be loaded into this one.
        """
        needed = f"torch {version_of_torch()} is installed"
        try:
            # The binary names no library of torch's (_flags.py), so these names make the loaded libraries visible from
            # now on. The binary itself is RTLD_LOCAL, so that nothing else binds its names.
            for name in _flags.TORCHS:
                ctypes.CDLL(str(_TORCH / "lib" / name), mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL | os.RTLD_NOW)
            self._binary = ctypes.PyDLL(str(path))
            built_for = self._bind(f"{_PREFIX}built_for")
        except (OSError, AttributeError) as error:
            raise errors.NotSupported(f"{path} is no router for this torch ({needed}): {error}") from error
        self.built_for = built_for().decode()
        if self.built_for != version_of_torch():
            raise errors.NotSupported(f"{path} is the router for torch {self.built_for}, and {needed}: its allocator "
                                      "class changes with each minor version. Remove the file, or set "
                                      f"{_VARIABLE} to one that was built for {version_of_torch()}")
        for name in _abi.ROUTER_FUNCTIONS:
            setattr(self, name[len(_PREFIX):], self._bind(name))
        if fast:
            fast.route_by(*(ctypes.cast(function, ctypes.c_void_p).value
                            for function in (self.scope_begin, self.scope_end)))
        for status, kind in errors.KINDS.items():
            if issubclass(kind, RuntimeError):  # all of torch's errors are
                self.raise_as(status, id(for_ever(kind)))
        self.path = path

    def _bind(self, name: str) -> Any:
        function = getattr(self._binary, name)
        function.restype, function.argtypes = _abi.ROUTER_FUNCTIONS[name]
        return function

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the router has no {name}")

    def check(self, result: int) -> int:
        """Raises the error of a function that returned a negative number."""
        if result < 0:
            raise errors.FailedPrecondition(self.last_error().decode("utf-8", "replace"))
        return result


def _sources() -> Optional[pathlib.Path]:
    """The folder above the router's sources, in the wheel or in a checkout; None if there are no sources."""
    here = pathlib.Path(__file__).resolve()
    return next((root for root in (here.parent / "router", *here.parents[4:5])
                 if (root / _SEVERAL).exists() and (root / _HEADER).exists()), None)


def _files(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for pattern in ("src/torch/*.cc", "src/torch/*.h", "src/library/pool/scopes/plan.h",
                                       "include/commpool/*.h") for path in root.glob(pattern))


def _build() -> pathlib.Path:
    """Returns the binary for this torch. Compiles it if it is missing.

    Raises:
      CannotBuild: with the reason.
    """
    root = _sources()
    if root is None:
        raise _compile.CannotBuild("this package has no sources of the router")
    cxx11_abi = int(torch.compiled_with_cxx11_abi())

    def command() -> list[str]:
        cuda = _compile.cuda_headers(_TORCH.parent, (torch.version.cuda or "13").partition(".")[0])
        system = (_TORCH / "include", _TORCH / "include/torch/csrc/api/include", cuda)
        return [f"-D_GLIBCXX_USE_CXX11_ABI={cxx11_abi}", f"-I{root}", f"-I{root / 'include'}",
                *(f"-isystem{path}" for path in system), str(root / _SEVERAL)]

    return _compile.built(f"torch/router-{torch.__version__}-abi{cxx11_abi}", _files(root), command, _THROWS, _VARIABLE)


def _find() -> pathlib.Path:
    """The binary to load.

    Raises:
      _compile.CannotBuild: there is none, and it cannot be made.
    """
    asked = os.environ.get(_VARIABLE)
    if asked:
        return pathlib.Path(asked)
    in_wheel = pathlib.Path(__file__).parent / "lib" / f"libcommpool_torch_{version_of_torch()}.so"
    return in_wheel if in_wheel.exists() else _build()


def _refuse_unknown_torch() -> None:
    if tuple(map(int, version_of_torch().split("."))) < _OLDEST:
        raise errors.NotSupported(f"commpool.torch knows torch from 2.9 on, and {torch.__version__} is installed")
    if not torch.version.cuda:
        raise errors.NotSupported(f"torch {torch.__version__} was built without CUDA")


@functools.lru_cache(maxsize=None)
def _load() -> tuple[Optional[Router], str]:
    """Loads at most one router in a process. Returns None and the reason if there is none."""
    _refuse_unknown_torch()
    try:
        return Router(_find()), ""
    except _compile.CannotBuild as error:
        return None, str(error)


def router() -> Optional[Router]:
    """The router's functions; None where there is no binary and no compiler (`reason` says more)."""
    return _load()[0]


def loaded() -> Optional[Router]:
    """The router, if it was asked for before. This call compiles nothing."""
    return _load()[0] if _load.cache_info().currsize else None


def reason() -> str:
    """The reason why there is no router."""
    return _load()[1]
