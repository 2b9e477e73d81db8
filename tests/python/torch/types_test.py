"""commpool.torch has all that commpool has, and mypy, strict, finds nothing in it with torch's own types."""

import importlib.util
import inspect
import pathlib
import subprocess
import sys
import tempfile
import unittest

from routed import commpool

import commpool as plain


class Names(unittest.TestCase):
    def test_are_those_of_commpool_and_more(self):
        self.assertEqual(set(plain.__all__) - set(commpool.__all__), set())
        for name in commpool.__all__:
            thing = getattr(commpool, name)
            self.assertTrue(not (inspect.isclass(thing) or inspect.isroutine(thing)) or inspect.getdoc(thing), name)
        self.assertIs(commpool.record_stream, plain.record_stream)
        self.assertTrue(issubclass(commpool.Pool, plain.Pool))


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
