"""commpool/mr.h against CCCL's and RMM's headers, by g++: it compiles, refuses older ones, and runs on the emulator.

The program is compiled once, as C++20, which RMM's headers ask for; the header alone also as C++17.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import libraries

_REPOSITORY = pathlib.Path.cwd()  # the root of Bazel's runfiles
_SOURCE = _REPOSITORY / "tests/memory_resource/program.cc"
_CUDA = _REPOSITORY / "external/cuda/include"
_LIBRARY = _REPOSITORY / "src/library/c_api/libcommpool.so.0"
_EMULATOR = _REPOSITORY / "src/emulator"
_COMPILER = ["g++", "-Wall", "-Wextra", "-Werror", f"-I{_REPOSITORY / 'include'}"]


def compile_text(text, *options):
    return subprocess.run([*_COMPILER, "-fsyntax-only", "-x", "c++", "-", *options], input=text, capture_output=True,
                          text=True, check=False)


def system(*folders):
    return [word for folder in folders for word in ("-isystem", str(folder))]


@libraries.needed
class MemoryResource(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        packages = libraries.site_packages()
        rmm, logger = packages / "librmm", packages / "rapids_logger/lib64"
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.program = pathlib.Path(cls.work.name, "program")
        libraries_of_it = [_LIBRARY, rmm / "lib64/librmm.so", logger / "librapids_logger.so",
                           _EMULATOR / "cudart/libcudart.so.13"]
        paths = [f"-Wl,-rpath,{file.parent}" for file in libraries_of_it]
        result = subprocess.run([*_COMPILER, "-std=c++20", *system(rmm / "include/rapids", rmm / "include", _CUDA),
                                 str(_SOURCE), "-o", str(cls.program), *map(str, libraries_of_it), *paths, "-ldl"],
                                capture_output=True, text=True, check=False)
        if result.returncode:
            raise AssertionError(result.stdout + result.stderr)

    def run_case(self, *names):
        drivers = [_EMULATOR / name for name in ("cuda/libcuda.so.1", "cudart/libcudart.so.13")]
        environment = {**os.environ, "LD_PRELOAD": ":".join(map(str, drivers)), "COMMPOOL_DRIVER": "emulated",
                       "COMMPOOL_EMULATOR_LIBRARIES": str(_EMULATOR)}
        result = subprocess.run([str(self.program), *names], env=environment, capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0, f"{names}: {result.stdout}{result.stderr}")
        return result

    def test_each_case_of_the_program_holds(self):
        names = self.run_case().stdout.split()
        self.assertGreaterEqual(len(names), 9)
        for name in names:
            with self.subTest(name):
                self.assertEqual(self.run_case(name).stdout, f"{name} ok\n")

    def test_what_cannot_be_freed_is_said_and_kept(self):
        said = self.run_case("keeps_what_is_not_its_own").stderr.splitlines()
        self.assertEqual([line.partition(": it ")[2] for line in said],
                         ["is in no live block: it was freed before, or is another allocator's",
                          "is a block of another pool, which keeps it",
                          "is in no live block: it was freed before, or is another allocator's"])

    def test_compiles_as_cxx17_against_the_wheel_of_cccl(self):
        cccl = libraries.site_packages() / "nvidia/cu13/include/cccl"
        result = compile_text('#include "commpool/mr.h"\n', "-std=c++17", *system(cccl, _CUDA))
        self.assertEqual(result.returncode, 0, result.stderr)

    @unittest.skipUnless(shutil.which("nvcc"), "there is no nvcc")
    def test_compiles_by_nvcc_with_thrust(self):
        packages = libraries.site_packages()
        folders = [_REPOSITORY / "include", packages / "librmm/include/rapids", packages / "librmm/include",
                   packages / "rapids_logger/include"]
        with tempfile.TemporaryDirectory() as folder:
            command = ["nvcc", "-std=c++20", "--extended-lambda", *[f"-I{path}" for path in folders], "-c",
                       str(_SOURCE.with_name("thrust.cu")), "-o", f"{folder}/thrust.o"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_refuses_an_older_cccl_with_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "cuda").mkdir()
            pathlib.Path(folder, "cuda/version").write_text("#define CCCL_VERSION 3000001\n", encoding="ascii")
            result = compile_text('#include "commpool/mr.h"\n', "-std=c++17", *system(folder, _CUDA))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("commpool/mr.h needs CCCL 3.2 or later", result.stderr)


if __name__ == "__main__":
    unittest.main()
