"""The stock torch passes tensors to another process on the emulator, of both kinds of segments; no commpool."""

import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(__file__).parent / "shared_tensors_program.py"


class SharedTensors(unittest.TestCase):
    def run_with(self, expandable):
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}
        run = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(run.stdout.splitlines(), [
            f"expandable {expandable}",
            "the other reads 1000.0 1000.0",
            "it wrote 2500.0 and sent 2100.0",
            "it ends with 0 and leaves 1000.0 2500.0",
        ], run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("broken rule", run.stderr)

    def test_of_cuda_malloc_are_read_written_and_outlive_the_other_process(self):
        self.run_with(expandable=False)

    def test_of_expandable_segments_are_too(self):
        self.run_with(expandable=True)


if __name__ == "__main__":
    unittest.main()
