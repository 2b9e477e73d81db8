"""Runs the Python examples, and the first program on the package's page, on the emulator."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import emulated

_EXAMPLES = pathlib.Path(emulated.REPOSITORY, "examples/python")
_PAGE = pathlib.Path(emulated.REPOSITORY, "src/python/README.md")
_WORDS = {
    "first.py": r"(?s)4 MiB in use of 4 MiB reserved>\nno memory for 100 MiB in pool activations.*\n"
                r"4194304 bytes went back to the driver\n$",
    "scopes.py": r"(?s)no scope: +default\nlarge blocks only: +pool default\na pool that is too small: pool\n"
                 r"another thread: +default\none stream, any thread: +pool\n$",
    "sleeping.py": r"^<commpool.Pool 'weights', .*: 64 MiB in use of 64 MiB reserved, 64 MiB asleep>\n"
                   r"<commpool.Pool 'cache', .*, 128 MiB asleep>\npool weights .* is asleep: wake\(\) it first\n"
                   r"64 MiB at the same address: True\nasleep: 0\n$",
    "own_allocator.py": r"^1000 allocations, 1 call of ncclMemAlloc\n$",
}
_OF_TWO_LIBRARIES = {"torch_and_cupy.py"}  # //tests/python/torch:two_libraries_test runs it


class Examples(unittest.TestCase):
    def run_program(self, program):
        emulator = os.path.join(emulated.REPOSITORY, "src/emulator")
        environment = {**os.environ, "PYTHONPATH": emulated.PACKAGE, "COMMPOOL_EMULATOR_LIBRARIES": emulator,
                       "LD_LIBRARY_PATH": f"{emulator}/cuda:{emulator}/nccl"}
        result = subprocess.run([sys.executable, "-B", program], env=environment, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_each_prints_what_it_shows(self):
        self.assertEqual({file.name for file in _EXAMPLES.glob("*.py")}, set(_WORDS) | _OF_TWO_LIBRARIES)
        for name, words in _WORDS.items():
            self.assertRegex(self.run_program(_EXAMPLES / name), words)

    def test_the_program_of_the_page_runs_as_it_stands(self):
        [program] = re.findall(r"```python\n# first.py\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "first.py")
        file.write_text(program, encoding="utf-8")
        self.assertRegex(self.run_program(file), "^<commpool.Pool 'activations', device 0, vmm fixed: 4 MiB in use")
