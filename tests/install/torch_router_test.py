"""What is judged of a binary for a version of torch, on a folder that looks like an unpacked wheel."""

import pathlib
import subprocess
import tempfile
import unittest
import zipfile

import torch_router

_DLOPEN = "#include <dlfcn.h>\nvoid* open_it(void) { return dlopen(0, 0); }\n"


class Torch(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.folder = pathlib.Path(work.name)
        (self.folder / "torch/lib").mkdir(parents=True)
        self.write("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
        self.library("libcudart.so.13", "int cudaGetDevice(void) { return 0; }\n")
        self.library("libc10_cuda.so", "int of_c10(void) { return 1; }\n", "-Wl,--no-as-needed",
                     "-l:libcudart.so.13")

    def write(self, text):
        (self.folder / "torch/version.py").write_text(text, encoding="utf-8")

    def library(self, name, source, *options):
        lib = self.folder / "torch/lib"
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(lib / name), f"-Wl,-soname,{name}",
                        f"-L{lib}", *options], input=source, text=True, check=True)
        return lib / name

    def test_tells_its_version(self):
        self.assertEqual(torch_router.version(self.folder), "2.11")
        self.write("nothing\n")
        with self.assertRaisesRegex(ValueError, "tells no version"):
            torch_router.version(self.folder)

    def test_gives_a_binary_what_its_libraries_and_cudas_runtime_have(self):
        source = "int of_c10(void);\nint cudaGetDevice(void);\nint both(void) { return of_c10() + cudaGetDevice(); }\n"
        binary = self.library("router.so", source)
        self.assertEqual(torch_router.does_not_load(binary, self.folder), "")
        self.assertEqual(torch_router.asks_for_torchs(binary), [])

    def test_refuses_a_binary_that_asks_for_torchs_libraries(self):
        binary = self.library("router.so", "int of_c10(void);\nint it(void) { return of_c10(); }\n", "-lc10_cuda")
        self.assertEqual(torch_router.asks_for_torchs(binary), ["router.so needs libc10_cuda.so"])

    def test_takes_of_a_wheel_what_it_needs(self):
        wheel = self.folder / "torch-2.11.0-cp311.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in ("version.py", "include/c10/core/Allocator.h", "lib/libc10.so", "lib/libtorch_cuda.so"):
                archive.writestr(f"torch/{name}", "__version__ = '2.11.0'\n")
        unpacked = torch_router.unpack(wheel, self.folder / "unpacked")
        self.assertEqual(torch_router.version(unpacked), "2.11")
        self.assertTrue((unpacked / "torch/include/c10/core/Allocator.h").exists())
        self.assertEqual([file.name for file in (unpacked / "torch/lib").iterdir()], ["libc10.so"])

    def test_refuses_a_binary_that_asks_for_what_nobody_has(self):
        binary = self.library("router.so", "int of_another(void);\nint it(void) { return of_another(); }\n")
        self.assertIn("undefined symbol: of_another", torch_router.does_not_load(binary, self.folder))

    def test_judges_symbols_by_the_newest_that_its_own_libraries_ask_for(self):
        binary = self.library("router.so", _DLOPEN)
        newest = torch_router.portability.newest_versions(binary)["GLIBC"]
        oldest, torch_router.portability.OLDEST = torch_router.portability.OLDEST, {"GLIBC": "2.1", "GCC": "1.0"}
        self.addCleanup(setattr, torch_router.portability, "OLDEST", oldest)
        self.library("libc10.so", "int nothing_else(void) { return 1; }\n")
        [found] = torch_router.newer_than_torchs(binary, self.folder)
        self.assertIn(f"router.so needs GLIBC_{newest}, newer than GLIBC_", found)
        self.library("libc10.so", _DLOPEN)
        self.assertEqual(torch_router.newer_than_torchs(binary, self.folder), [])


if __name__ == "__main__":
    unittest.main()
