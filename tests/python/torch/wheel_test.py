"""commpool.torch from a wheel that pip installed: with the binary for this torch, and without it."""

import argparse
import functools
import pathlib
import sys
import unittest

import torch

import hardware_wheel
import installed
import on_emulator
import torch_router
import wheel

_TORCH = pathlib.Path(torch.__file__).resolve().parents[1]
_CUDA = installed.REPOSITORY / "external/cuda/include"
_OLDER = (installed.REPOSITORY / sys.argv[8]).parent
_MODULES = sorted((installed.REPOSITORY / "src/python/commpool").rglob("*.abi3.so"))
# Wheels of other versions, unpacked beside this environment: torch-2.11/torch/include and so on.
_OTHERS = sorted(file.parents[1] for file in pathlib.Path(sys.prefix).parent.glob("torch-2.*/torch/version.py"))


def compiled(name):
    output = installed.WORK / name
    output.mkdir()
    return torch_router.build(argparse.Namespace(source=installed.REPOSITORY, torch=_TORCH, older=_OLDER, cuda=_CUDA,
                                                 output=output))


@functools.lru_cache(maxsize=None)
def binary():
    return compiled("binary")


class Binary(unittest.TestCase):
    def test_asks_for_no_more_than_torch_does_and_loads_with_it(self):
        self.assertEqual(torch_router.newer_than_torchs(binary(), _TORCH) + torch_router.asks_for_torchs(binary())
                         + torch_router.portability.misplaced(binary()), [])
        self.assertEqual(torch_router.does_not_load(binary(), _TORCH), "")

    def test_is_the_same_from_the_same_sources(self):
        again = compiled("again")
        self.assertEqual(again.name, binary().name)
        self.assertEqual(again.read_bytes(), binary().read_bytes())

    def test_compiles_for_every_other_version_that_is_here(self):
        if not _OTHERS:
            self.skipTest(f"no other torch lies unpacked in {pathlib.Path(sys.prefix).parent}")
        source = installed.REPOSITORY
        for folder in _OTHERS:
            headers = [folder / "torch/include", folder / "torch/include/torch/csrc/api/include", _CUDA]
            result = installed.run("g++", "-std=c++20", "-fsyntax-only", f"-I{source}", f"-I{source / 'include'}",
                                   *(f"-isystem{header}" for header in headers),
                                   source / "src/torch/router_all.cc")
            self.assertEqual(result.returncode, 0, f"{folder.name}: {result.stderr}")


class Wheel(unittest.TestCase):
    """Does what hardware_wheel.py does on a GPU machine."""

    @classmethod
    def setUpClass(cls):
        on_emulator.keep_operations()

    def install(self, name, routers):
        file, _ = wheel.make(installed.built(output=installed.WORK / name, module=_MODULES, router=routers))
        work = installed.WORK / f"with {name}"
        work.mkdir()
        return hardware_wheel.installed(file, work, with_a_binary=bool(routers))

    def test_serves_a_program_by_the_binary_in_it(self):
        self.assertEqual(self.install("binary", [f"{torch_router.version(_TORCH)}={binary()}"]), [])

    def test_serves_a_program_by_what_a_compiler_makes_of_it(self):
        self.assertEqual(self.install("sources", []), [])
