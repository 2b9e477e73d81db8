"""The package as a whole: it imports no framework, and tells of everything that it offers."""

import inspect
import json
import os
import subprocess
import sys
import unittest

import emulated
import commpool

_FRAMEWORKS = ("torch", "cupy", "rmm", "numba", "numpy", "jax", "warp", "cuda")


class Package(unittest.TestCase):
    def test_imports_no_framework(self):
        program = "import sys, json, commpool; print(json.dumps(sorted(sys.modules)))"
        with_paths = {**os.environ, "PYTHONPATH": emulated.PACKAGE}
        run = subprocess.run([sys.executable, "-c", program], env=with_paths, stdout=subprocess.PIPE, check=True)
        modules = {name.partition(".")[0] for name in json.loads(run.stdout)}
        self.assertIn("commpool", modules)
        self.assertEqual(modules & set(_FRAMEWORKS), set())

    def test_tells_of_everything_that_it_offers(self):
        untold = []
        for name in commpool.__all__:
            thing = getattr(commpool, name)
            if not inspect.isclass(thing) and not inspect.isroutine(thing):
                continue
            if not inspect.getdoc(thing):
                untold.append(name)
            if not inspect.isclass(thing):
                continue
            untold += [f"{name}.{method}" for method, function in inspect.getmembers(thing, inspect.isfunction)
                       if not method.startswith("_") and not inspect.getdoc(function)]
        self.assertEqual(untold, [])

    def test_offers_no_name_twice_and_none_that_is_not_there(self):
        self.assertEqual(len(commpool.__all__), len(set(commpool.__all__)))
        self.assertEqual([name for name in commpool.__all__ if not hasattr(commpool, name)], [])


if __name__ == "__main__":
    unittest.main()
