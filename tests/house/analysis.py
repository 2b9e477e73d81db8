"""Clang's syntax and its analysis of locks: what a mutex guards is used under that mutex alone.

GCC ignores the annotations of src/base/mutex.h; this is where they are read. Nothing is compiled: the library takes
seconds, the programs (tests, tools, examples) minutes.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

ANNOTATIONS = "src/base/mutex.h"
COMPILERS = ["clang++-14", "clang++"]
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# As tools/bazel/dependencies.bzl finds them: header, variable, places, folder below tools/setup's cache.
_HEADERS = [
    ("cuda.h", "COMMPOOL_CUDA_INCLUDE", ["/usr/local/cuda/include", "/usr/local/cuda-13/include"], "cuda/include"),
    ("nccl.h", "COMMPOOL_NCCL_INCLUDE", ["/usr/local/cuda/include", "/usr/local/include", "/usr/include"],
     "nccl/include"),
]
_MPI_INCLUDES = ["/usr/lib/x86_64-linux-gnu/openmpi/include", "/usr/lib/aarch64-linux-gnu/openmpi/include"]
_FOREIGN = re.compile(r'^\s*#\s*include\s*[<"](?:c10|torch|rmm|cub)/', re.MULTILINE)  # tools/setup installs them apart
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


def _folder(header, variable, places, cached):
    cache = os.environ.get("COMMPOOL_CACHE", str(pathlib.Path.home() / ".cache/commpool"))
    asked = os.environ.get(variable)
    folders = [asked] if asked else [*places, f"{cache}/{cached}"]
    return next((folder for folder in folders if pathlib.Path(folder, header).exists()), None)


def annotated_sources(root):
    """The sources below src/ that see an annotation, whatever header brings it; paths relative to the root."""
    includes = {}
    for path in pathlib.Path(root, "src").rglob("*"):
        if path.suffix in {".h", ".cc", ".inc"}:
            includes[str(path.relative_to(root))] = _INCLUDE.findall(path.read_text(encoding="utf-8"))
    users = {}
    for path, included in includes.items():
        for header in included:
            users.setdefault(header, []).append(path)
    seen, left = {ANNOTATIONS}, [ANNOTATIONS]
    while left:
        for path in users.get(left.pop(), []):
            if path not in seen:
                seen.add(path)
                left.append(path)
    return sorted(path for path in seen if path.endswith(".cc"))


def programs(root):
    """The sources outside of src/ that include nobody's headers but ours and the system's."""
    found = [path for folder in ["tests", "tools", "examples"] for path in pathlib.Path(root, folder).rglob("*.cc")]
    return sorted(str(path.relative_to(root)) for path in found
                  if not _FOREIGN.search(path.read_text(encoding="utf-8")))


def problems(root, sources):
    """What the compiler says of each source that it refuses, or that breaks a promise about locks."""
    command = [compiler(), "-std=c++20", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety",
               # The parts of a pool reach its locks by different paths, which the precise form takes for other locks.
               "-Wno-thread-safety-precise",
               f"-I{root}", f"-I{root}/include", "-DOMPI_SKIP_MPICXX=1",
               *(flag for folder in _MPI_INCLUDES for flag in ["-isystem", folder])]
    for header, *places in _HEADERS:
        folder = _folder(header, *places)
        if folder not in (None, _SYSTEM_INCLUDE):
            command += ["-isystem", folder]

    def analyse(path):
        run = subprocess.run([*command, *_FLAGS.get(path, []), str(pathlib.Path(root, path))],
                             capture_output=True, text=True, check=False)
        return run.stderr.strip() if run.returncode else ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        return [text for text in threads.map(analyse, sources) if text]
