"""mypy, strict, finds nothing in commpool.torch with torch's own types."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest


@unittest.skipUnless(importlib.util.find_spec("mypy"), "this environment has no mypy")
class Types(unittest.TestCase):
    def test_of_commpool_torch_are_strict(self):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "-p", "commpool.torch"]
            run = subprocess.run(command, cwd=pathlib.Path("src/python").resolve(), capture_output=True, text=True,
                                 check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
