"""Compiles an RMM resource for the installed RMM, if there is a compiler: in seconds, once for each version.

RMM's Python package offers no C++ interface, but its classes hold a C++ reference, and librmm's wheel brings the
headers. A private folder (`COMMPOOL_CACHE`, else ~/.cache/commpool) keeps the binary; its name has RMM's version and a
hash of the sources.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import pathlib
from typing import Any

from . import _compile
from ._compile import CannotBuild
from ._library import library

_SOURCE = "_rmm_resource.cc"
# The offset of the one member of RMM's class: it follows CPython's object head and Cython's table of functions.
_OFFSET = 3 * ctypes.sizeof(ctypes.c_void_p)
_DECLARED = {
    "pylibrmm/memory_resource/_memory_resource.pxd":
        "cdef class DeviceMemoryResource:\n    cdef optional[device_async_resource_ref] c_ref\n\n"
        "    cdef device_async_resource_ref get_mr(self) noexcept nogil\n",
    "librmm/memory_resource.pxd":
        "struct cython_device_async_resource_ref {\n        std::optional<rmm::device_async_resource_ref> ref;\n",
}
# A resource must throw what RMM's package catches.
_THROWS = """
import commpool.rmm
try:
    commpool.rmm.resource(path="c++").allocate(1 << 60)
except MemoryError:
    pass
"""
_TRIED = "COMMPOOL_RMM_TRIAL"  # names the binary in the trial process


def placed(kind: Any, pool: Any, device: int) -> Any:
    """Makes an object of `kind`, a Python subclass of RMM's DeviceMemoryResource, over a pool, which it keeps; None is
    what scopes catch.

    Raises:
      CannotBuild: with the reason.
    """
    place = _place()
    resource = kind.__new__(kind)
    place(id(resource) + _OFFSET, 0 if pool is None else pool.handle, device)
    resource.commpool_pool = pool
    return resource


@functools.lru_cache(maxsize=None)
def _place() -> Any:
    mr = importlib.import_module("rmm.mr")
    _check_member(importlib.import_module("rmm"))
    try:
        shim = ctypes.CDLL(str(_build()))
    except OSError as error:  # for example, the compiler's libraries are newer than the process's
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


def _ours() -> str:
    """libcommpool for the linker. It is loaded before the binary, which finds it by its soname."""
    return library.path if os.path.isabs(library.path) or "/" in library.path else f"-l:{library.path}"


def _build() -> pathlib.Path:
    if _TRIED in os.environ:
        return pathlib.Path(os.environ[_TRIED])
    here, librmm = pathlib.Path(__file__).resolve().parent, importlib.import_module("librmm")
    source, installed = here / _SOURCE, pathlib.Path(librmm.__file__ or "").parent
    if not source.exists():
        raise CannotBuild(f"this package has no {_SOURCE}")
    # Our own headers, from the wheel or a checkout.
    ours = _compile.first_with("the package is not whole", [here / "include", *(parent / "include" for parent in
                                                                                here.parents[2:3])], "commpool/mr.h")

    def command() -> list[str]:
        system = (installed / "include/rapids", installed / "include", _compile.cuda_headers(installed.parent))
        return [f"-I{ours}", *(f"-isystem{path}" for path in system), str(source), _ours(),
                f"-L{installed / 'lib64'}", "-l:librmm.so"]

    return _compile.built(f"rmm/resource-{librmm.__version__}",
                          [source, ours / "commpool/mr.h", ours / "commpool/commpool.h"], command, _THROWS, _TRIED)
