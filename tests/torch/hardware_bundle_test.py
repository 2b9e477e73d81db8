"""The scripts that make bundles for GPU machines: asked for help they tell how they are called, and build nothing."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

_SCRIPTS = sys.argv[1:]


class Bundles(unittest.TestCase):
    def test_tell_how_they_are_called(self):
        for script in _SCRIPTS:
            for word in ("-h", "--help"):
                run = subprocess.run([script, word], capture_output=True, text=True, check=False)
                self.assertEqual((run.returncode, run.stderr), (0, ""), script)
                self.assertTrue(run.stdout.startswith(f"usage: {script}"), run.stdout)
                self.assertIn("TORCH", run.stdout)

    def test_take_no_other_option_for_a_folder(self):
        for script in _SCRIPTS:
            with tempfile.TemporaryDirectory() as folder:
                run = subprocess.run([pathlib.Path(script).resolve(), "--tiny"], cwd=folder, capture_output=True,
                                     text=True, check=False)
                self.assertEqual(run.returncode, 2, script)
                self.assertIn("--tiny is no folder", run.stderr)
                self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
