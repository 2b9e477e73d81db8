"""libcommpool.so exports the C ABI alone, each function under its version, and is linked with no CUDA and no NCCL."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import count_code
import symbols

LIBRARY, HEADER, COMMPOOL_H = sys.argv[1:]


def version_of(header):
    """Its major and minor version."""
    return tuple(int(re.search(rf"#define COMMPOOL_VERSION_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR"))


def node(version):
    """The version of the symbols of a library."""
    return f"COMMPOOL_{version[0]}.{version[1]}"


def run_program_built_with(version):
    """A program that was linked with a library of that version, run with ours."""
    with tempfile.TemporaryDirectory() as folder:
        library, program = f"{folder}/libcommpool.so.0", f"{folder}/program"
        script = pathlib.Path(folder, "exports.lds")
        script.write_text(node(version) + " { global: commpool_version; local: *; };")
        compile_c("int commpool_version(void) { return 0; }", "-shared", "-fPIC", "-o", library,
                  "-Wl,-soname,libcommpool.so.0", f"-Wl,--version-script,{script}")
        compile_c("int commpool_version(void); int main(void) { return commpool_version() == 0; }", "-o", program,
                  "-x", "none", library)
        return subprocess.run([program], env={"LD_LIBRARY_PATH": str(pathlib.Path(LIBRARY).parent.absolute())},
                              capture_output=True, text=True, check=False)


def compile_c(text, *arguments):
    subprocess.run(["gcc", "-x", "c", "-", *arguments], input=text, text=True, check=True)


class ExportedSymbols(unittest.TestCase):

    def setUp(self):
        self.nm = symbols.output_of("nm", "--dynamic", "--defined-only", LIBRARY)
        self.readelf = symbols.output_of("readelf", "--dynamic", "--wide", LIBRARY)
        self.header = pathlib.Path(HEADER).read_text()

    def test_the_library_exports_the_functions_of_commpool_h_alone(self):
        found = symbols.problems(symbols.exported(self.nm), symbols.needed(self.readelf),
                                 symbols.declared(self.header))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_each_function_has_the_minor_version_of_the_header(self):
        expected = {node(version_of(self.header)): symbols.declared(self.header)}
        found = list(symbols.version_problems(symbols.versions(self.nm), {**expected,
                                                                            **symbols.OF_ADAPTERS_BY_VERSION}))
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_a_program_of_another_minor_version_is_refused_in_words(self):
        major, minor = version_of(self.header)
        self.assertEqual(run_program_built_with((major, minor)).returncode, 0, "it is ours")
        for other in ((major, minor - 1), (major, minor + 1)):
            result = run_program_built_with(other)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(f"libcommpool.so.0: version `{node(other)}' not found", result.stderr)

    def test_programs_load_it_by_its_major_version(self):
        major = version_of(self.header)[0]
        self.assertEqual(symbols.shared_name(self.readelf), f"libcommpool.so.{major}")

    def test_the_surface_stays_small(self):
        self.assertLessEqual(len(symbols.declared(pathlib.Path(COMMPOOL_H).read_text())), 55)
        self.assertLessEqual(len(symbols.declared(self.header)), 75)
        code = count_code.lines_of(pathlib.Path(HEADER), lambda: self.header)
        self.assertLessEqual(code, 500, "lines of all C headers that hold more than a comment")
