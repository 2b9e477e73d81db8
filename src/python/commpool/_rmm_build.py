"""Compiles an RMM resource for the RMM that is installed: in seconds, once for a version, where there is a compiler.

RMM's Python package has no door to C++; its classes hold a C++ reference, and librmm's wheel brings the headers. The
binary is kept in a private folder (`COMMPOOL_CACHE`, else ~/.cache/commpool), under a name with RMM's version and a
hash of the sources.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import pathlib
from typing import Any, Iterator

from . import _compile, _flags
from ._compile import CannotBuild
from ._library import library

_SOURCE = "_rmm_resource.cc"
# Where the one member of RMM's class lies: behind CPython's head of an object and Cython's table of functions.
_OFFSET = 3 * ctypes.sizeof(ctypes.c_void_p)
_DECLARED = {
    "pylibrmm/memory_resource/_memory_resource.pxd":
        "cdef class DeviceMemoryResource:\n    cdef optional[device_async_resource_ref] c_ref\n\n"
        "    cdef device_async_resource_ref get_mr(self) noexcept nogil\n",
    "librmm/memory_resource.pxd":
        "struct cython_device_async_resource_ref {\n        std::optional<rmm::device_async_resource_ref> ref;\n",
}
# A resource has to throw what RMM's package catches.
_THROWS = """
import commpool.rmm
try:
    commpool.rmm.resource(path="c++").allocate(1 << 60)
except MemoryError:
    pass
"""
_TRIED = "COMMPOOL_RMM_TRIAL"  # in that process: the binary that it tries


def placed(kind: Any, pool: int, device: int) -> Any:
    """An object of `kind`, a Python subclass of RMM's DeviceMemoryResource, over a pool.

    Raises:
      CannotBuild: with the reason.
    """
    place = _place()
    resource = kind.__new__(kind)
    place(id(resource) + _OFFSET, pool, device)
    return resource


@functools.lru_cache(maxsize=None)
def _place() -> Any:
    mr = importlib.import_module("rmm.mr")
    _check_member(importlib.import_module("rmm"))
    try:
        shim = ctypes.CDLL(str(_build()))
    except OSError as error:  # made by a compiler whose libraries are newer than the process's, for one
        raise CannotBuild(f"what was compiled does not load: {error}") from error
    shim.commpool_rmm_size.restype = ctypes.c_size_t
    size = mr.DeviceMemoryResource.__basicsize__ - _OFFSET
    if shim.commpool_rmm_size() != size:
        raise CannotBuild(f"a reference takes {shim.commpool_rmm_size()} bytes, and RMM's class has {size} for it")
    shim.commpool_rmm_place.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
    shim.commpool_rmm_place.restype = None
    return shim.commpool_rmm_place


def _check_member(rmm: Any) -> None:
    for name, words in _DECLARED.items():
        file = pathlib.Path(rmm.__file__).parent / name
        if not file.exists() or words not in file.read_text(encoding="utf-8"):
            raise CannotBuild(f"RMM {rmm.__version__} declares DeviceMemoryResource in another way than is known")


def _includes() -> Iterator[pathlib.Path]:
    """Our own headers: of the wheel, or of a checkout."""
    here = pathlib.Path(__file__).resolve().parent
    yield here / "include"
    yield from (parent / "include" for parent in here.parents[2:3])


def _cuda_includes(packages: pathlib.Path) -> Iterator[pathlib.Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield pathlib.Path(os.environ[variable]) / "include"
    yield from packages.glob("nvidia/cu1*/include")
    yield packages / "nvidia/cuda_runtime/include"
    yield pathlib.Path("/usr/local/cuda/include")


def _first(folders: Iterator[pathlib.Path], *headers: str) -> pathlib.Path:
    for folder in folders:
        if all((folder / header).exists() for header in headers):
            return folder
    raise CannotBuild(f"no folder has {' and '.join(headers)}")


def _command(source: pathlib.Path, output: pathlib.Path) -> list[str]:
    librmm = pathlib.Path(importlib.import_module("librmm").__file__ or "").parent
    ours = _first(_includes(), "commpool/mr.h")
    cuda = _first(_cuda_includes(librmm.parent), "cuda_runtime_api.h", "crt/host_config.h")
    return [_compile.compiler(), *_flags.CXX, f"-I{ours}", "-isystem", str(librmm / "include/rapids"), "-isystem",
            str(librmm / "include"), "-isystem", str(cuda), str(source), "-o", str(output), _ours(),
            f"-L{librmm / 'lib64'}", "-l:librmm.so", *_flags.LINK]


def _ours() -> str:
    """libcommpool for the linker. It is loaded already when the binary is, and found by its soname."""
    return library.path if os.path.isabs(library.path) or "/" in library.path else f"-l:{library.path}"


def _build() -> pathlib.Path:
    if _TRIED in os.environ:
        return pathlib.Path(os.environ[_TRIED])
    source = pathlib.Path(__file__).resolve().parent / _SOURCE
    if not source.exists():
        raise CannotBuild(f"this package has no {_SOURCE}")
    digest = hashlib.sha256(" ".join((*_flags.CXX, *_flags.LINK)).encode() + source.read_bytes() +
                            (_first(_includes(), "commpool/mr.h") / "commpool/mr.h").read_bytes())
    version = importlib.import_module("librmm").__version__
    return _compile.once(_compile.cache() / "rmm" / f"resource-{version}-{digest.hexdigest()[:16]}.so",
                         lambda output: _command(source, output),
                         lambda made: _compile.try_out(made, _THROWS, _TRIED))
