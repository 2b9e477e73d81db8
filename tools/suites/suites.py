"""Other projects' suites for tools/others: where a release has its tests, and how a user sets a program of the
framework on a pool."""

import dataclasses
import os
import re

# The parts of test_cuda.py about memory.
_ALLOCATOR = (r"TestMemPool|TestBlockStateAbsorption|TestCudaMallocAsync|"
              r"test_\w*(memory|alloc|snapshot|pluggable|pool|cache|caching|record_stream|oom|fraction|graph_capture)")


@dataclasses.dataclass(frozen=True)
class Suite:
    """The suite of one framework."""

    framework: str  # the module, imported first: a checkout must not take the place of the installed one
    files: tuple  # patterns below the checkout
    put: object  # pool -> a function that sets it again before each test
    tests: str = ""  # a part of the names of tests
    words: tuple = ()  # for pytest
    path: tuple = ()  # folders below the checkout where Python finds modules
    prepare: object = lambda: None  # runs in the process, with and without a pool
    mode: str = "fixed"

    def files_below(self, source):
        """{pattern: files}."""
        return {pattern: sorted(path for path in source.glob(pattern) if path.is_file()) for pattern in self.files}

    def wants(self, name, tests=None):
        return re.search(self.tests if tests is None else tests, name) is not None


def _put_cupy(pool):
    import commpool.cupy
    import cupy

    allocator = commpool.cupy.allocator(pool)
    return lambda: cupy.cuda.set_allocator(allocator)


def _put_rmm(pool):
    import commpool.rmm
    import rmm

    resource = commpool.rmm.resource(pool)
    return lambda: rmm.mr.set_current_device_resource(resource)


def _put_numba(pool):
    import commpool.numba

    commpool.numba.use(pool)
    return lambda: None  # a memory manager is set once


def _prepare_torch():
    if os.environ.get("COMMPOOL_DRIVER") == "emulated":
        import plain_allocator

        plain_allocator.compile_plainly()


def _put_torch(pool, whole=False):
    import commpool.torch

    if not commpool.torch.install(default=pool if whole else None):
        raise RuntimeError("there is no router for this torch")
    return lambda: None


_TORCH = {"framework": "torch", "files": ("test/test_cuda.py",), "tests": _ALLOCATOR, "words": ("--noconftest",),
          "prepare": _prepare_torch}

SUITES = {
    "cupy": Suite("cupy", ("tests/cupy_tests/core_tests/**/test_*.py", "tests/cupy_tests/creation_tests/test_*.py",
                           "tests/cupy_tests/manipulation_tests/test_*.py",
                           "tests/cupy_tests/cuda_tests/test_stream.py",
                           "tests/cupy_tests/cuda_tests/test_graph*.py"), _put_cupy),
    "numba": Suite("numba.cuda", ("numba_cuda/numba/cuda/tests/cudadrv/test_*.py",), _put_numba,
                   words=("--import-mode=importlib", "-p", "conftest"), path=("testing",)),
    "rmm": Suite("rmm", ("python/rmm/rmm/tests/test_*.py",), _put_rmm),
    "torch": Suite(put=_put_torch, **_TORCH),
    "torch-whole": Suite(put=lambda pool: _put_torch(pool, whole=True), mode="expandable", **_TORCH),
}
