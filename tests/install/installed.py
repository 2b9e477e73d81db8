"""An install tree of what the suite built, made once a test program; and programs that run in a bare environment."""

import argparse
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import install_tree

REPOSITORY = pathlib.Path.cwd()  # the root of Bazel's runfiles
LIBRARY, CLI, CUDA, CUDART, NCCL, NVML, INTERPOSE = (REPOSITORY / path for path in sys.argv[1:8])
WORK = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))


def built(**options):
    """What a tree is made of, with further options."""
    return argparse.Namespace(source=REPOSITORY, library=LIBRARY, cli=CLI, cuda=CUDA, cudart=CUDART, nccl=NCCL,
                              nvml=NVML, interpose=INTERPOSE, **options)


@functools.lru_cache(maxsize=None)
def prefix():
    folder = WORK / "prefix"
    install_tree.install(built(prefix=folder))
    return folder


def flags(folder=None):
    """What a compiler needs behind a program's sources to build it against a tree."""
    folder = folder or prefix()
    return [f"-I{folder}/include", f"-L{folder}/lib", "-lcommpool", f"-Wl,-rpath,{folder}/lib"]


def compile_library(name, source, *options):
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(WORK / name), *options], input=source,
                   text=True, check=True)
    return WORK / name


class Case(unittest.TestCase):
    maxDiff = None

    def must(self, *command, **options):
        """What `run` returns; the command must succeed."""
        result = run(*command, **options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result


def run(*command, cwd=None, **variables):
    """Without the caller's COMMPOOL_ variables and library paths: what starts here starts anywhere."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run([str(word) for word in command], cwd=cwd, env={**environment, **variables},
                          capture_output=True, text=True, timeout=280)
