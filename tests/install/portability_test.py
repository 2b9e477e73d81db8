"""Which machines, systems and versions of torch a binary is for; a folder takes the place of an unpacked wheel."""

import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest
import zipfile

import make_stub
import portability
import torch_router

_LISTING = """
0000000000085500 g    DF .text	0000000000000090 (GLIBC_2.2.5) dlopen
0000000000085500 g    DF .text	0000000000000090  GLIBC_2.34  dlopen
00000000000f77e0  w   DF .text	0000000000000012  GLIBC_2.33  stat
00000000001db320  w   DO .bss	0000000000000008  GLIBC_2.2.5 environ
0000000000000010 g    DO .tbss	0000000000000004  GLIBC_PRIVATE errno
0000000000000010 g    DO .tbss	0000000000000004  GLIBC_2.2.5 h_errno
0000000000000000      DF *UND*	0000000000000000  GLIBC_2.3   __tls_get_addr
0000000000000000 g    DO *ABS*	0000000000000000  GLIBC_2.4   GLIBC_2.4
"""
_DLOPEN = "#include <dlfcn.h>\nvoid* open_it(void) { return dlopen(0, 0); }\n"


class Machines(unittest.TestCase):
    def test_are_told_by_the_file(self):
        self.assertEqual(portability.machine(sys.executable), platform.machine())
        self.assertEqual(portability.tool("strip", sys.executable), "strip")

    def test_of_another_kind_need_the_cross_compilers_tools(self):
        other = {"x86_64": ("aarch64", 183), "aarch64": ("x86_64", 62)}[platform.machine()]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "library.so")
            file.write_bytes(b"\x7fELF" + bytes(14) + other[1].to_bytes(2, "little") + bytes(44))
            self.assertEqual(portability.machine(file), other[0])
            self.assertEqual(portability.tool("strip", file), f"{other[0]}-linux-gnu-strip")


class Symbols(unittest.TestCase):
    def test_are_of_the_newest_variant_that_the_older_system_has(self):
        symbols = make_stub.read_symbols(_LISTING, {"GLIBC": "2.28"}, "drop")
        self.assertEqual(symbols, {
            "dlopen": ("GLIBC_2.2.5", "function", 0x90),
            "environ": ("GLIBC_2.2.5", "object", 8),
            "h_errno": ("GLIBC_2.2.5", "tls_object", 4),
        })

    def test_that_came_later_are_kept_where_asked(self):
        symbols = make_stub.read_symbols(_LISTING, {"GLIBC": "2.28"}, "keep")
        self.assertEqual(symbols["stat"][0], "GLIBC_2.33")
        self.assertEqual(symbols["dlopen"][0], "GLIBC_2.2.5")

    def test_that_moved_are_of_the_library_that_the_older_system_has_them_in(self):
        symbols = make_stub.moved_symbols(_LISTING, {"GLIBC": "2.28"}, ["dl", "h_", "stat"])
        self.assertEqual(symbols, {"dlopen": ("GLIBC_2.2.5", "function", 0x90)})

    def test_are_written_with_their_versions(self):
        text = make_stub.assembly({"environ": ("GLIBC_2.2.5", "object", 8)})
        self.assertIn(".symver stub_0, environ@@GLIBC_2.2.5", text)
        self.assertIn(".size stub_0, 8", text)


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
