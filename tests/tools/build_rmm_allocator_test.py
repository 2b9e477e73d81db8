"""tools/bench/build_rmm_allocator.sh finds CUDA's runtime and headers wherever they lie, and says where it looked."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path("tools/bench/build_rmm_allocator.sh").resolve()


class BuildRmmAllocator(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.wheels = self.folder / "wheels"
        (self.wheels / "librmm/include/rmm").mkdir(parents=True)
        # A compiler that tells its words, and a Python that knows no wheels.
        self.tell("g++", 'printf "%s\\n" "$@"')
        self.tell("python3", "exit 1")

    def tell(self, name, line):
        program = self.folder / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{line}\n")
        program.chmod(0o755)

    def make(self, *files):
        for file in files:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).touch()

    def run_script(self, home):
        path = f"{self.folder / 'programs'}:{os.environ['PATH']}"
        return subprocess.run([SCRIPT, self.wheels, "out.so"], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": path, "CUDA_HOME": str(self.folder / home)})

    def assert_takes(self, *places):
        words = set(self.run_script("toolkit").stdout.split("\n"))
        self.assertLessEqual({f"{self.folder}/{place}" for place in places}, words)

    def test_takes_both_of_a_toolkit(self):
        self.make("toolkit/lib64/libcudart.so.13", "toolkit/include/cuda_runtime_api.h")
        self.assert_takes("toolkit/lib64/libcudart.so.13", "toolkit/include")

    def test_takes_the_runtime_of_a_wheel_where_the_toolkit_has_headers_alone(self):
        self.make("toolkit/include/cuda_runtime_api.h", "site/nvidia/cu13/lib/libcudart.so.13")
        self.tell("python3", f"echo {self.folder}/site/nvidia/cu13")
        self.assert_takes("toolkit/include", "site/nvidia/cu13/lib/libcudart.so.13")

    def test_says_where_it_looked(self):
        result = self.run_script("nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"no libcudart.so.13 in {self.folder}/nowhere, {self.wheels}/nvidia/cu13: ", result.stderr)

    def test_says_that_the_wheels_are_missing(self):
        self.wheels = self.folder
        result = self.run_script("toolkit")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(f"no librmm in {self.folder}", result.stderr)
