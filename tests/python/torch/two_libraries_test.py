"""examples/python/torch_and_cupy.py: the real PyTorch beside a stand-in for CuPy, which needs the real driver."""

import os
import subprocess
import sys
import unittest

_EXAMPLE = "examples/python/torch_and_cupy.py"
_STAND_INS = os.path.abspath("tests/python/libraries/stand_ins")
_LINES = """both bytes: current 1200, peak 1200, total 1200
both count: current 2, peak 2, total 2
without the array bytes: current 400, peak 1200, total 1200
without the array count: current 1, peak 2, total 2
with another tensor bytes: current 800, peak 1200, total 2000
with another tensor count: current 1, peak 2, total 3
"""


class TwoLibraries(unittest.TestCase):
    def test_count_in_one_statistic(self):
        environment = {**os.environ, "COMMPOOL_LIBRARY": os.path.abspath("src/c_api/libcommpool.so.0"),
                       "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{_STAND_INS}"}
        result = subprocess.run([sys.executable, "-B", _EXAMPLE], env=environment, capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, _LINES)
        self.assertNotIn("broken rule", result.stderr)


if __name__ == "__main__":
    unittest.main()
