"""Projects outside of this repository build against an install tree and run on the emulator: CMake, pkg-config, g++."""

import pathlib
import re
import shutil
import unittest

import installed

_PROJECTS = installed.REPOSITORY / "tests/install/projects"
_CUDA_HEADERS = installed.REPOSITORY / "external/cuda/include"
_ON = "on emulated CUDA driver"


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"there is no {program} here")


class Outside(installed.Case):
    def emulate(self, *command, **options):
        return self.must(installed.prefix() / "bin/commpool", "emulate", "--", *command, **options)

    def folder(self, name):
        folder = installed.WORK / name
        folder.mkdir()
        return folder

    def cmake(self, source):
        """Builds a project that finds commpool where it is installed; returns its build folder."""
        build = self.folder(f"build-{source.name}")
        self.must("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={installed.prefix()}")
        self.must("cmake", "--build", build, "--parallel", "2")
        return build


@needs("cmake")
class CMake(Outside):
    def test_builds_c_and_cxx17_and_both_run(self):
        build = self.cmake(_PROJECTS / "cmake")
        for program, words in (("in_c", "C: 4 MiB in use"), ("in_cxx", "C++: 4 MiB in use")):
            result = self.must(build / program, COMMPOOL_DRIVER="emulated")
            self.assertIn(f"{words} {_ON}", result.stdout)

    def test_refuses_another_major_or_minor_version(self):
        for version in ("77.0", "0.1", "0.99"):
            project = self.folder(f"demanding-{version}")
            (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.18)\nproject(demanding NONE)\n"
                                                    f"find_package(commpool {version} REQUIRED)\n", encoding="utf-8")
            result = installed.run("cmake", "-S", project, "-B", project / "build",
                                   f"-DCMAKE_PREFIX_PATH={installed.prefix()}")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(version, result.stderr)


@needs("pkg-config")
class PkgConfig(Outside):
    def test_tells_what_a_program_needs(self):
        files = {"PKG_CONFIG_PATH": str(installed.prefix() / "lib/pkgconfig")}
        flags = self.must("pkg-config", "--cflags", "--libs", "commpool", **files).stdout.split()
        folder = self.folder("pkg-config")
        for compiler, source, words in (("gcc", "program.c", "C: 4"), ("g++ -std=c++17", "program.cc", "C++: 4")):
            self.must(*compiler.split(), _PROJECTS / "cmake" / source, "-o", folder / "program", *flags)
            result = self.must(folder / "program", COMMPOOL_DRIVER="emulated")
            self.assertIn(f"{words} MiB in use {_ON}", result.stdout)

    def test_knows_the_version_and_the_emulators_folder(self):
        files = {"PKG_CONFIG_PATH": str(installed.prefix() / "lib/pkgconfig")}
        self.assertRegex(self.must("pkg-config", "--modversion", "commpool", **files).stdout, r"^\d+\.\d+\.\d+$")
        emulator = self.must("pkg-config", "--variable=emulatordir", "commpool", **files).stdout.strip()
        self.assertTrue((pathlib.Path(emulator) / "libcuda.so.1").is_file())


class ByHand(Outside):
    def test_warns_of_nothing_in_the_headers(self):
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        folder = self.folder("by-hand")
        for compiler, source in (("gcc -std=c11", "program.c"), ("g++ -std=c++17", "program.cc")):
            program = folder / source.replace(".", "-")
            self.must(*compiler.split(), *strict, _PROJECTS / "cmake" / source, "-o", program, *installed.flags())
            self.assertIn(_ON, self.must(program, COMMPOOL_DRIVER="emulated").stdout)

    def test_a_null_stream_without_a_context_works_where_the_device_is_named(self):
        program = self.folder("alone") / "no_context"
        self.must("g++", "-std=c++17", _PROJECTS / "alone/no_context.cc", "-o", program, *installed.flags())
        for result in (self.must(program, COMMPOOL_DRIVER="emulated"), self.emulate(program)):
            served, refused = result.stdout.splitlines()
            self.assertEqual(served, "device 0: 1")
            self.assertIn("no CUDA context is current on this thread", refused)
            self.assertIn("name the device", refused)

    def test_the_programs_of_the_c_reference_build_and_run_as_they_stand(self):
        page = (installed.REPOSITORY / "include/commpool/reference.md").read_text(encoding="utf-8")
        programs = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
        self.assertEqual(len(programs), 2)
        folder = self.folder("reference")
        for number, program in enumerate(programs):
            made = "" if "commpool_pool pool;" in program else \
                "commpool_pool pool; commpool_pool_options options; commpool_pool_options_init(&options);" \
                "if (commpool_pool_create(&options, &pool)) return 1;"
            (folder / "program.c").write_text(
                "#include <stdio.h>\n#include <commpool/commpool.h>\nint main(void) {\n"
                "struct ncclComm* communicator = 0; struct CUstream_st* stream = 0; uint64_t bytes = 4096;\n"
                f"(void)communicator; (void)stream; (void)bytes; {made}\n{program}\n"
                "fputs(commpool_last_error(), stdout); return 0; }\n", encoding="utf-8")
            built = folder / f"program-{number}"
            self.must("gcc", "-std=c11", folder / "program.c", "-o", built, *installed.flags())
            self.assertEqual(self.must(built, COMMPOOL_DRIVER="emulated").stdout, "")


class Emulated(Outside):
    def build(self, name):
        program = self.folder(name) / name
        emulator = installed.prefix() / "lib/commpool/emulator"
        self.must("g++", "-std=c++17", "-g", _PROJECTS / f"emulated/{name}.cc", f"-I{_CUDA_HEADERS}", "-o", program,
                  *installed.flags(), f"-L{emulator}", "-lcuda")
        return program

    def test_reports_name_the_functions_of_the_program(self):
        result = self.emulate(self.build("race"))
        self.assertIn("done", result.stdout)
        self.assertIn("broken rule: race: ", result.stderr)
        self.assertRegex(result.stderr, r"issued at WriteOnTheFirstStream \(race\S+\) <- ForgetToRecord \(race\S+\) <- "
                                        r"main \(race\S+\)")
        self.assertRegex(result.stderr, r"issued at WriteOnTheSecondStream \(race\S+\) <- main \(race\S+\)[;\n]")
        self.assertRegex(result.stderr, r"broken rule: dead stream: .*; noticed in AskTheDead \(race\S+\) "
                                        r"<- main \(race\S+\)\n")
