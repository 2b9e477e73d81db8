"""Clang's syntax and its analysis of locks: what a mutex guards is used under that mutex alone.

GCC ignores the annotations of src/library/base/mutex.h; here they are read. Nothing is compiled: the library takes
seconds, the programs (tests, tools, examples) minutes. What it passed is not read again (verdicts.py).
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import includes
import verdicts

ANNOTATIONS = "src/library/base/mutex.h"
COMPILERS = ["clang++-14", "clang++"]
# As tools/bazel/dependencies.bzl finds them: header, variable, places, folder below tools/setup's cache.
_HEADERS = [
    ("cuda.h", "COMMPOOL_CUDA_INCLUDE", ["/usr/local/cuda/include", "/usr/local/cuda-13/include"], "cuda/include"),
    ("nccl.h", "COMMPOOL_NCCL_INCLUDE", ["/usr/local/cuda/include", "/usr/local/include", "/usr/include"],
     "nccl/include"),
]
_MPI_INCLUDES = ["/usr/lib/x86_64-linux-gnu/openmpi/include", "/usr/lib/aarch64-linux-gnu/openmpi/include"]
_FOREIGN = re.compile(r'^\s*#\s*include\s*[<"](?:c10|torch|rmm|cub)/', re.MULTILINE)  # tools/setup installs them apart
# What many programs read most of their time, the longest first.
COMMON_HEADERS = [
    '"tests/registration/symmetric_fixture.h"', '"tests/pool/pool_fixture.h"', '"src/library/pool/runtime.h"',
    "<nlohmann/json.hpp>", '"tests/driver/emulator_fixture.h"', "<gtest/gtest.h>", '"src/library/driver/loader.h"',
    '"commpool/pool.h"',
]
# The flags that the BUILD files give.
_FLAGS = {
    "tests/include/skin_test.cc": ["-std=c++17", "-DCOMMPOOL_TEST_STANDARD=17"],
    "tests/include/without_exceptions_test.cc": ["-std=c++17", "-fno-exceptions", "-fno-rtti"],
}
_SYSTEM_INCLUDE = "/usr/include"  # the compiler looks there itself, in the right order


def compiler():
    """The compiler's path; None where there is none."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def missing_header():
    """The name of a header that cannot be found; empty where all are there."""
    return next((header for header, *places in _HEADERS if _folder(header, *places) is None), "")


def _cache():
    return os.environ.get("COMMPOOL_CACHE", str(pathlib.Path.home() / ".cache/commpool"))


def _folder(header, variable, places, cached):
    asked = os.environ.get(variable)
    folders = [asked] if asked else [*places, f"{_cache()}/{cached}"]
    return next((folder for folder in folders if pathlib.Path(folder, header).exists()), None)


def annotated_sources(root):
    """The sources below src/ that see an annotation, whatever header brings it; paths relative to the root."""
    headers = includes.Includes(root)
    sources = [str(path.relative_to(root)) for path in pathlib.Path(root, "src").rglob("*.cc")]
    return sorted(path for path in sources if f'"{ANNOTATIONS}"' in headers.reached(path))


def programs(root):
    """The sources outside of src/ that include nobody's headers but ours and the system's."""
    found = [path for folder in ["tests", "tools", "examples"] for path in pathlib.Path(root, folder).rglob("*.cc")]
    return sorted(str(path.relative_to(root)) for path in found
                  if not _FOREIGN.search(path.read_text(encoding="utf-8")))


def _command():
    command = [compiler(), "-std=c++20", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety",
               # The parts of a pool reach its locks by different paths, which the precise form takes for other locks.
               "-Wno-thread-safety-precise", "-I.", "-Iinclude", "-DOMPI_SKIP_MPICXX=1",
               *(flag for folder in _MPI_INCLUDES for flag in ["-isystem", folder])]
    for header, *places in _HEADERS:
        folder = _folder(header, *places)
        if folder not in (None, _SYSTEM_INCLUDE):
            command += ["-isystem", folder]
    return command


def _run(root, *command):
    """What the compiler says of a source that it refuses."""
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return (run.stderr.strip() or "the compiler failed") if run.returncode else ""


def kept_verdicts(root):
    return verdicts.Verdicts(pathlib.Path(_cache(), "analysed"), root)


def problems(root, sources, kept=None, common=()):
    """What the compiler says of each source that it refuses, or that breaks a promise about locks.

    `kept`: the verdicts of earlier runs, and of later ones. `common`: headers that are read once for all sources that
    reach them; a source gets the first of these.
    """
    command, headers = _command(), includes.Includes(root)
    key = {path: [*command, *_FLAGS.get(path, []), path] for path in sources}
    left = [path for path in sources if kept is None or not kept.passed(key[path])]
    chosen = {path: next((header for header in common if path not in _FLAGS and header in headers.reached(path)), None)
              for path in left}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        def precompile(header):
            place = pathlib.Path(folder, str(common.index(header)))
            place.with_suffix(".h").write_text(f"#include {header}\n", encoding="utf-8")
            return _run(root, *command, "-x", "c++-header", str(place.with_suffix(".h")), "-o", f"{place}.pch")

        def analyse(path):
            rule = pathlib.Path(folder, path.replace("/", "-")).with_suffix(".d")
            first = ["-include-pch", f"{folder}/{common.index(chosen[path])}.pch"] if chosen[path] else []
            said = _run(root, *key[path], "-fsyntax-only", "-MD", "-MF", str(rule), *first)
            if not said and kept is not None:
                rules = rule.read_text(encoding="utf-8").replace("\\\n", " ").strip()
                read = [name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", rules)[1:]]
                kept.note(key[path], [name for name in read if not name.startswith(folder)])
            return said

        refused = list(filter(None, threads.map(precompile, sorted(set(filter(None, chosen.values()))))))
        return refused or list(filter(None, threads.map(analyse, left)))
