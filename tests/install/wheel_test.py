"""The wheel: what it holds, an install into an empty virtual environment, and programs that use it there."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

import installed
import portability
import wheel

_MODULES = sorted((installed.REPOSITORY / "src/python/commpool").rglob("*.abi3.so"))
_ABI = installed.REPOSITORY / "src/python/commpool/_abi.py"
_PROJECT = installed.REPOSITORY / "tests/install/projects/cmake"
_PROGRAM = """
import commpool, sys
pool = commpool.Pool("in a venv")
with commpool.use_pool(pool):
    array = commpool.empty((1024, 1024), device=0)
print(pool.stats().allocated_bytes.current >> 20, commpool.driver_description(), commpool._library.fast is not None)
"""

# As scikit-build-core does it.
_LOOKUP = """
import importlib.metadata, importlib.resources
points = importlib.metadata.entry_points()
[point] = points.select(group="cmake.prefix") if hasattr(points, "select") else points["cmake.prefix"]
print(importlib.resources.files(point.value))
"""


@functools.lru_cache(maxsize=None)
def made(folder="wheel", router=()):
    file, found = wheel.make(installed.built(output=installed.WORK / folder, module=[*_MODULES, _ABI],
                                             router=list(router)))
    assert found == [] or all("bytes, over" in line for line in found), found  # no optimised build is judged here
    return file


@functools.lru_cache(maxsize=None)
def environment():
    """A virtual environment with the wheel and nothing else; nothing is fetched."""
    folder = installed.WORK / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
    result = installed.run(folder / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps",
                           "--disable-pip-version-check", made())
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def has_venv():
    return subprocess.run([sys.executable, "-c", "import ensurepip"], check=False, capture_output=True).returncode == 0


class Contents(installed.Case):
    def test_are_the_package_the_install_tree_and_what_pip_asks_for(self):
        names = set(zipfile.ZipFile(made()).namelist())
        for name in ("__init__.py", "py.typed", "_fast.abi3.so", "_fast.pyi", "_rmm_resource.cc", "bin/commpool",
                     "lib/libcommpool.so.0", "lib/commpool/emulator/libcuda.so.1",
                     "lib/commpool/libcommpool_interpose.so",
                     "lib/cmake/commpool/commpoolConfig.cmake",
                     "include/commpool/commpool.h", "lib/pkgconfig/commpool.pc", "share/doc/commpool/LICENSE",
                     "share/commpool/examples/python/first.py"):
            self.assertIn(f"commpool/{name}", names)
        self.assertFalse([name for name in names if name.endswith((".pyc", "_fast.c", "BUILD"))])
        record = {line.split(",")[0] for line in self.read("RECORD").splitlines()}
        self.assertEqual(record, names)

    def test_tell_version_tag_and_entry_points(self):
        header = (installed.REPOSITORY / "include/commpool/commpool.h").read_text(encoding="utf-8")
        version = wheel.install_tree.read_version(header)
        self.assertIn(f"\nVersion: {version}\n", self.read("METADATA"))
        match = re.fullmatch(rf"commpool-{version}-(py3-none-manylinux_2_(\d+)_(?:x86_64|aarch64))\.whl", made().name)
        self.assertLessEqual(int(match.group(2)), 28)
        self.assertIn(f"Tag: {match.group(1)}\n", self.read("WHEEL"))
        self.assertEqual(self.read("entry_points.txt"), "[console_scripts]\ncommpool = commpool.command:main\n\n"
                                                        "[cmake.prefix]\ncommpool = commpool\n")

    def test_are_the_same_bytes_each_time(self):
        again = made("again")
        self.assertEqual(again.name, made().name)
        self.assertEqual(again.read_bytes(), made().read_bytes())

    def test_ask_for_nothing_newer_than_the_tag_says(self):
        folder = installed.WORK / "unpacked"
        zipfile.ZipFile(made()).extractall(folder)
        found = wheel.binaries(folder)
        others = len(_MODULES) + len(list((folder / "commpool/lib/commpool/emulator").glob("*.so.*")))
        self.assertEqual(len(found), 3 + others)  # the library, the program, and what it preloads
        for file in found:
            self.assertEqual(portability.too_new(file) + portability.misplaced(file), [])
            self.assertNotIn(str(installed.REPOSITORY), portability.runpath(file))
        self.assertEqual(portability.runpath(folder / "commpool/_fast.abi3.so"), "$ORIGIN/lib")

    def test_modules_take_of_python_what_every_version_since_3_9_has(self):
        include = installed.REPOSITORY / "external/python/include"
        limited = subprocess.run(["gcc", "-E", "-P", "-dD", "-DPY_SSIZE_T_CLEAN", "-DPy_LIMITED_API=0x03090000",
                                  f"-I{include}", "-x", "c", "-"], input="#include <Python.h>\n",
                                 capture_output=True, text=True, check=True).stdout
        stable = set(re.findall(r"\b_?Py\w+", limited))
        self.assertNotIn("PyUnicode_AsUTF8", stable)  # since 3.13
        for module in _MODULES:
            listed = subprocess.run(["nm", "--dynamic", "--undefined-only", module], capture_output=True, text=True,
                                    check=True).stdout
            asked = {line.split()[-1] for line in listed.splitlines()}
            asked = {name for name in asked if name.startswith(("Py", "_Py"))}
            self.assertTrue(asked, module)
            self.assertEqual(asked - stable, set(), module)

    def test_a_tag_that_nothing_has_is_refused(self):
        folder = installed.WORK / "newer"
        folder.mkdir()
        shutil.copy(shutil.which("gcc"), folder / "gcc")
        limits, wheel._SYSTEMS = wheel._SYSTEMS, {"manylinux_2_1": {node: "0.1" for node in portability.OLDEST}}
        self.addCleanup(setattr, wheel, "_SYSTEMS", limits)
        with self.assertRaisesRegex(ValueError, "gcc needs GLIBC_"):
            wheel.tag(folder)

    def test_auditwheel_finds_the_tag_right(self):
        torch = os.environ.get("COMMPOOL_TORCH", "")
        program = shutil.which("auditwheel", path=f"{torch}/bin:{os.environ['PATH']}")
        if not program:
            self.skipTest("there is no auditwheel: COMMPOOL_TORCH names no environment that has it")
        # As the real one it leaves torch's names to who loads it.
        router = installed.compile_library("router.so", "int of_c10(void);\nint it(void) { return of_c10(); }\n")
        for file in (made(), made("with a router", (f"2.15={router}",))):
            result = self.must(program, "show", file)
            tag = re.search(r"manylinux_2_\d+_\w+", file.name).group(0)
            self.assertIn(f"consistent with the following platform tag: \"{tag}\"", " ".join(result.stdout.split()))

    def read(self, name):
        version = made().name.split("-")[1]
        return zipfile.ZipFile(made()).read(f"commpool-{version}.dist-info/{name}").decode()


@unittest.skipUnless(has_venv(), "there is no python3-venv here")
class Installed(installed.Case):
    def python(self, program, *arguments, **variables):
        return installed.run(environment() / "bin/python", *arguments, "-c", program, cwd=installed.WORK, **variables)

    def test_serves_a_program(self):
        result = self.python(_PROGRAM, COMMPOOL_DRIVER="emulated")
        self.assertRegex(result.stdout, r"^4 emulated CUDA driver .* True\n$", result.stderr)

    def test_the_program_is_on_the_path_and_finds_all_by_its_place(self):
        commpool = environment() / "bin/commpool"
        result = installed.run(commpool, "emulate", "--", environment() / "bin/python", "-c", _PROGRAM)
        self.assertRegex(result.stdout, r"4 .*CUDA driver .* True\n$", result.stderr)
        result = installed.run(commpool, "info", COMMPOOL_DRIVER="emulated")
        self.assertIn("site-packages/commpool/lib/commpool/emulator/libnccl.so.2", result.stdout)

    def test_says_what_is_wrong_with_another_library(self):
        for library, reason in (("/no/libcommpool.so.0", "commpool's library was not found: /no/libcommpool.so.0"),
                                (str(installed.CUDA), "is no commpool library, or older than 0.2")):
            result = self.python("import commpool", COMMPOOL_LIBRARY=library)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"ImportError: {reason}" if library.startswith("/no") else reason, result.stderr)

    def test_refuses_a_library_of_another_minor_version_with_a_sentence(self):
        for number, words in ((100, "0.1.0"), (9900, "0.99.0")):
            file = installed.compile_library(f"{number}.so", f"int commpool_version(void) {{ return {number}; }}\n")
            result = self.python("import commpool", COMMPOOL_LIBRARY=str(file))
            version = made().name.split("-")[1]
            self.assertIn(f"{file} is commpool {words}, and this package is of {version}, which needs the same minor",
                          result.stderr)

    def test_programs_in_c_build_against_it(self):
        prefix = next((environment() / "lib").glob("python*/site-packages/commpool"))
        program = installed.WORK / "program"
        self.must("gcc", _PROJECT / "program.c", "-o", program, *installed.flags(prefix))
        self.assertIn("C: 4 MiB in use", installed.run(program, COMMPOOL_DRIVER="emulated").stdout)

    @unittest.skipUnless(shutil.which("cmake"), "there is no cmake here")
    def test_cmake_finds_it_by_its_entry_point(self):
        prefix = self.python(_LOOKUP).stdout.strip()
        build = installed.WORK / "build"
        self.must("cmake", "-S", _PROJECT, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
        self.must("cmake", "--build", build)
        self.assertIn("C++: 4 MiB in use", installed.run(build / "in_cxx", COMMPOOL_DRIVER="emulated").stdout)
