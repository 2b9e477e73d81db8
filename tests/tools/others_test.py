"""tools/others tells of each test of a suite whether pools change what becomes of it, and loses none behind a crash."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.abspath("tools/others")
STAND_INS = os.path.abspath("tests/python/libraries/stand_ins")
_SECONDS = 8  # of a test that hangs

# Tests of a suite: with pools four of them come out differently.
ARRAYS = """
import os, threading, unittest
import cupy
import pytest

class Arrays(unittest.TestCase):
    def test_a_passes(self):
        pass
    def test_b_fails(self):
        self.fail("on a pool" if cupy.ALLOCATOR[0] else "as ever")
    def test_b_fails_alike(self):
        self.fail(f"at {id(self)} as ever")
    def test_c_skips(self):
        self.skipTest("there is no device")
    def test_d_dies(self):
        os.abort()
    def test_e_hangs(self):
        threading.Event().wait()
    def test_f_ends_the_process(self):
        os._exit(3 if cupy.ALLOCATOR[0] else 0)
    @unittest.expectedFailure
    def test_g_fails_as_expected(self):
        self.fail("known")
    def test_h_skips_on_pools(self):
        if cupy.ALLOCATOR[0]:
            self.skipTest("not here")
    def test_i_sets_an_allocator(self):
        cupy.cuda.set_allocator(None)
    def test_j_is_on_the_pool_again(self):
        self.assertIsNone(cupy.ALLOCATOR[0])

@pytest.fixture
def without():
    yield
    assert cupy.ALLOCATOR[0] is None, "at the end"

@pytest.mark.parametrize("length", [4, 5])
def test_makes(length, without):
    if cupy.ALLOCATOR[0]:
        cupy.zeros(length)
"""
OF_CUPY = ["core_tests/test_core.py", "creation_tests/test_basic.py", "manipulation_tests/test_join.py",
           "cuda_tests/test_stream.py", "cuda_tests/test_graph.py"]
ONE = "def test_of_one():\n    pass\n"

MEMORY = """
import unittest
import torch
from torch.utils import cpp_extension

SOURCE = '''
#include <torch/extension.h>
extern "C" {
C10_EXPORT void* made(size_t bytes, int device, void* stream) {
  void* pointer;
  C10_CUDA_CHECK(cudaMallocManaged(&pointer, bytes));
  return pointer;
}
C10_EXPORT void gone(void* pointer, size_t bytes, int device, void* stream) { C10_CUDA_CHECK(cudaFree(pointer)); }
}
'''

class TestMemPool(unittest.TestCase):
    def test_of_an_allocator_that_is_compiled(self):
        library = cpp_extension.load_inline("plain", SOURCE, functions=[], is_python_module=False)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "made", "gone").allocator()
        with torch.cuda.use_mem_pool(torch.cuda.MemPool(allocator)):
            self.assertEqual(torch.ones(4, device="cuda").numel(), 4)

class TestCuda(unittest.TestCase):
    def test_memory_is_rounded(self):
        kept = torch.empty(6 << 20, dtype=torch.uint8, device="cuda")
        self.assertEqual(torch.cuda.memory_reserved(), 20 << 20)
    def test_that_is_of_something_else(self):
        self.fail("it ran")
"""


class Others(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, place, text):
        file = self.folder / "source" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_cupy(self, first):
        for place, text in zip(OF_CUPY, [first] + [ONE] * len(OF_CUPY)):
            self.write(f"tests/cupy_tests/{place}", text)

    def run_tool(self, *words, library=os.path.abspath("src/library/c_api/libcommpool.so.0")):
        path = os.pathsep.join([STAND_INS, os.environ["PYTHONPATH"]])
        return subprocess.run([sys.executable, TOOL, *words, f"--source={self.folder}/source"], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": path, "COMMPOOL_LIBRARY": library})

    def test_tells_of_each_test_what_pools_change(self):
        self.write_cupy(ARRAYS)
        result = self.run_tool("cupy", f"--record={self.folder}/record", f"--seconds={_SECONDS}")
        self.assertEqual(result.returncode, 1, result.stderr + result.stdout)
        line, = (self.folder / "record").read_text().splitlines()
        record = json.loads(line)
        self.assertEqual(record["command"], "tools/others cupy")
        self.assertEqual(record["machine"]["cupy"], "stand-in")
        found = record["results"]
        self.assertEqual(found["counts"], {
            "without": {"passed": 4 + 6, "failed": 2, "skipped": 1, "dies": 2, "hangs": 1, "xfailed": 1},
            "pool": {"passed": 2 + 4, "failed": 3, "skipped": 2, "dies": 2, "hangs": 1, "xfailed": 1, "error": 2}})
        self.assertEqual(found["served"], 2)
        said = {name.rpartition(":")[2]: (both["without"]["outcome"], both["pool"]["outcome"], both["pool"]["reason"])
                for name, both in found["differences"].items()}
        self.assertEqual(said, {
            "test_h_skips_on_pools": ("passed", "skipped", "Skipped: not here"),
            "test_j_is_on_the_pool_again": ("passed", "failed", said["test_j_is_on_the_pool_again"][2]),
            "test_makes[4]": ("passed", "error", said["test_makes[4]"][2]),
            "test_makes[5]": ("passed", "error", said["test_makes[5]"][2])})
        self.assertIn("at the end", said["test_makes[4]"][2])
        self.assertIn("the pool served 2 of 17 tests; 4 differ\n", result.stdout)
        self.assertEqual([name.rpartition(":")[2] for name in found["other_reasons"]],
                         ["test_b_fails", "test_f_ends_the_process"])
        self.assertIn("2 come out the same for another reason\n", result.stdout)

    def test_keeps_what_it_has_run(self):
        self.write_cupy(ONE)
        self.assertEqual(self.run_tool("cupy", f"--work={self.folder}/work").returncode, 0)
        self.write_cupy("def test_of_one():\n    assert False\n")
        again = self.run_tool("cupy", f"--work={self.folder}/work")
        self.assertEqual(again.returncode, 0, again.stdout)
        self.assertEqual(len(list((self.folder / "work").glob("cupy-pool-*.log"))), len(OF_CUPY))

    def test_takes_files_and_tests_by_their_names(self):
        self.write_cupy("def test_one():\n    pass\ndef test_other():\n    assert False\n")
        result = self.run_tool("cupy", "--files=test_(core|join)", "--tests=test_one|nothing")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("served 0 of 1 tests; 0 differ", result.stdout)

    def test_says_what_it_could_not_compare(self):
        self.write_cupy("import what_nobody_has\n")
        result = self.run_tool("cupy")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout, "could not be collected: .*test_core.py: .*what_nobody_has")
        self.write_cupy(ONE)
        result = self.run_tool("cupy", library="/nowhere/libcommpool.so.0")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("/nowhere/libcommpool.so.0", result.stderr)
        result = self.run_tool("torch")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("not below", result.stderr)

    def test_puts_torch_on_a_pool_or_behind_the_router(self):
        self.write("test/test_cuda.py", MEMORY)
        result = self.run_tool("torch")
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertIn("served 0 of 2 tests; 0 differ", result.stdout)
        result = self.run_tool("torch-whole")
        self.assertEqual(result.returncode, 1, result.stderr + result.stdout)
        self.assertIn("served 1 of 2 tests; 1 differ\ntest/test_cuda.py::TestCuda::test_memory_is_rounded\n"
                      "  without passed\n  pool    failed   AssertionError", result.stdout)
