"""What an install tree holds, and what its binaries ask of a system."""

import re
import shutil
import unittest

import install_tree
import installed
import portability


_ONE = "int one(void) { return 1; }\n"
_OPENS = "#include <dlfcn.h>\nvoid* open_it(void) { return dlopen(0, 0); }\n"


class Tree(installed.Case):
    def test_has_a_place_for_everything(self):
        prefix = installed.prefix()
        emulator = ("libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so", "libcudart.so.13", "libcudart.so",
                    "libnvidia-ml.so.1")
        documents = ("LICENSE", "d3_license.txt", "README.md", "src/python/commpool/torch/README.md")
        for place in ("bin/commpool", "lib/libcommpool.so", "include/commpool/commpool.h", "include/commpool/pool.h",
                      "lib/cmake/commpool/commpoolConfig.cmake", "lib/cmake/commpool/commpoolConfigVersion.cmake",
                      "lib/pkgconfig/commpool.pc", "lib/commpool/libcommpool_interpose.so",
                      "share/commpool/examples/CMakeLists.txt", *(f"lib/commpool/emulator/{name}" for name in emulator),
                      *(f"share/doc/commpool/{name}" for name in documents)):
            self.assertTrue((prefix / place).is_file(), place)

    def test_the_library_lies_under_its_version_and_its_soname_leads_to_it(self):
        prefix = installed.prefix()
        version = install_tree.read_version((prefix / "include/commpool/commpool.h").read_text(encoding="utf-8"))
        library = prefix / f"lib/libcommpool.so.{version}"
        self.assertTrue(library.is_file() and not library.is_symlink())
        for link in ("libcommpool.so", portability.soname(library)):
            self.assertEqual((prefix / "lib" / link).resolve(), library.resolve())

    def test_pages_lead_to_pages_that_are_there(self):
        documents = installed.prefix() / install_tree.DOCUMENTS
        pages = sorted(documents.rglob("*.md"))
        self.assertEqual(len(pages), len(install_tree.PAGES))
        for page in pages:
            text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
                self.assertTrue("://" in link or (page.parent / link).exists(), f"{page}: {link}")
        self.assertIn("(include/commpool/reference.md)", (documents / "README.md").read_text(encoding="utf-8"))

    def test_examples_bring_no_file_of_this_repositorys_build(self):
        names = {file.name for file in (installed.prefix() / "share").rglob("*")}
        self.assertFalse(names & {"BUILD", "WORKSPACE"})
        for source in (installed.prefix() / "share/commpool/examples").rglob("*.cc"):
            self.assertNotIn('#include "src/', source.read_text(encoding="utf-8"), source)

    def test_nothing_names_the_folders_that_it_was_built_in(self):
        for file in installed.prefix().rglob("*"):
            if file.is_file() and file.suffix in (".cmake", ".pc"):
                self.assertNotIn(str(installed.prefix()), file.read_text(encoding="utf-8"), file)
        self.assertEqual(portability.runpath(installed.prefix() / "bin/commpool"), "$ORIGIN/../lib")

    def test_may_be_moved(self):
        moved = installed.WORK / "elsewhere" / "opt"
        shutil.copytree(installed.prefix(), moved, symlinks=True)
        result = self.must(moved / "bin/commpool", "info", COMMPOOL_DRIVER="emulated")
        self.assertIn(f"NCCL from {moved}/lib/commpool/emulator/libnccl.so.2", result.stdout)

    def test_may_be_installed_over_itself(self):
        before = installed.prefix()
        installed.prefix.cache_clear()
        self.assertEqual(installed.prefix(), before)


class Portability(installed.Case):
    def test_every_binary_loads_on_the_oldest_supported_system(self):
        prefix = installed.prefix()
        binaries = [prefix / "bin/commpool", (prefix / "lib/libcommpool.so").resolve(),
                    *(prefix / "lib/commpool").glob("*.so"), *(prefix / "lib/commpool/emulator").glob("*.so.*")]
        self.assertEqual(len(binaries), 7)
        for binary in binaries:
            self.assertIn("GLIBC", portability.newest_versions(binary), binary)
            self.assertEqual(portability.too_new(binary), [])
            self.assertEqual(portability.misplaced(binary), [])
            self.assertEqual(portability.files_of_symbols(binary)["memcpy"], "libc.so.6")

    def test_the_program_needs_no_library_that_a_system_may_lack(self):
        needed = portability.needed(installed.prefix() / "bin/commpool")
        everywhere = r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so\.\d+|ld-linux\S*"
        self.assertEqual({name for name in needed if not re.fullmatch(everywhere, name)}, {"libcommpool.so.0"})

    def test_what_goes_into_programs_of_others_brings_its_own_libstdcxx(self):
        needed = portability.needed(installed.prefix() / "lib/commpool/libcommpool_interpose.so")
        everywhere = r"lib(c|dl|gcc_s|pthread)\.so\.\d|ld-linux\S*"
        self.assertFalse([file for file in needed if not re.fullmatch(everywhere, file)], needed)

    def test_the_program_finds_what_it_preloads(self):
        program = installed.prefix() / "bin/commpool"
        for command, words in (("audit", "asked for no memory of a device"), ("run", "nothing here ran out of memory")):
            self.assertIn(words, self.must(program, command, "--", "python3", "-c", "pass").stderr)

    def test_the_program_opens_mpi_only_where_mpirun_started_it(self):
        planted = installed.compile_library("libmpi.so.40", _ONE)
        settings = {"COMMPOOL_DRIVER": "emulated", "LD_LIBRARY_PATH": str(planted.parent)}
        command = [installed.prefix() / "bin/commpool", "allreduce", "--bytes", "8K"]
        self.must(*command, **settings)
        under_mpirun = installed.run(*command, OMPI_COMM_WORLD_SIZE="1", **settings)
        self.assertEqual(under_mpirun.returncode, 4)
        self.assertIn(f"{planted} has no MPI_Init: it is not Open MPI's", under_mpirun.stderr)

    def test_a_symbol_is_looked_for_where_the_oldest_system_has_it(self):
        planted = installed.compile_library("planted.so.1", _OPENS)
        library = portability.files_of_symbols(planted)["dlopen"]  # libc.so.6 on a system of today
        expected = f"planted.so.1 looks for dlopen in {library}, and glibc 2.28 has it in libdl.so.2"
        self.assertEqual(portability.misplaced(planted), [] if library == "libdl.so.2" else [expected])

    def test_a_newer_symbol_is_named(self):
        planted = installed.compile_library("planted.so.1", _OPENS)
        newest = portability.newest_versions(planted)["GLIBC"]
        self.assertEqual(portability.too_new(planted, {"GLIBC": "2.1", "GCC": "1.0"})[0],
                         f"planted.so.1 needs GLIBC_{newest}, newer than GLIBC_2.1")

    def test_the_stripped_library_is_small(self):
        library = (installed.prefix() / "lib/libcommpool.so").resolve()
        if "-opt/bin/" not in str(installed.LIBRARY.resolve()):
            self.skipTest("built without optimisation: `tools/test -c opt` and tools/install judge its size")
        self.assertLessEqual(library.stat().st_size, portability.LIBRARY_BYTES)


class RunPath(unittest.TestCase):
    def test_is_replaced_in_place(self):
        planted = installed.compile_library("planted.so.1", _ONE, "-Wl,-rpath,/a/long/way/to/somewhere:$ORIGIN/x")
        install_tree.set_runpath(planted, "$ORIGIN/../lib")
        self.assertEqual(portability.runpath(planted), "$ORIGIN/../lib")

    def test_that_has_no_room_is_an_error(self):
        planted = installed.compile_library("planted.so.1", _ONE, "-Wl,-rpath,/a")
        with self.assertRaises(ValueError):
            install_tree.set_runpath(planted, "$ORIGIN/../lib")


class Limits(unittest.TestCase):
    def test_a_library_that_is_too_large_is_named(self):
        prefix = installed.WORK / "large"
        (prefix / "lib/commpool/emulator").mkdir(parents=True)
        (prefix / "bin").mkdir()
        shutil.copy(installed.CUDA, prefix / "bin/commpool")
        shutil.copy(installed.CUDA, prefix / "lib/libcommpool.so.0.2.0")
        with open(prefix / "lib/libcommpool.so.0.2.0", "ab") as file:
            file.write(bytes(portability.LIBRARY_BYTES))
        [found] = install_tree.problems(prefix, "libcommpool.so.0.2.0")
        self.assertRegex(found, r"libcommpool.so.0.2.0 has \d+ bytes, over 1900000")
