"""The package as a whole: it imports no framework, and documents everything that it offers."""

import ast
import dataclasses
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import emulated
import commpool
from commpool import pool


_OLDEST = shutil.which("python3.9")
if _OLDEST and subprocess.run([_OLDEST, "-c", ""], capture_output=True, check=False).returncode != 0:
    _OLDEST = None  # it is there, and does not run
_WITH_PATHS = {**os.environ, "PYTHONPATH": emulated.PACKAGE}
_FRAMEWORKS = ("torch", "cupy", "rmm", "numba", "numpy", "jax", "warp", "cuda")


def _imports(path):
    """The modules of the package that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module.partition(".")[0]} if node.module else {name.name for name in node.names}
    return found


class Package(unittest.TestCase):
    def test_imports_no_framework(self):
        program = "import sys, json, commpool; print(json.dumps(sorted(sys.modules)))"
        run = subprocess.run([sys.executable, "-c", program], env=_WITH_PATHS, stdout=subprocess.PIPE, check=True)
        modules = {name.partition(".")[0] for name in json.loads(run.stdout)}
        self.assertIn("commpool", modules)
        self.assertEqual(modules & set(_FRAMEWORKS), set())

    @unittest.skipUnless(_OLDEST, "this machine has no CPython 3.9")
    def test_is_imported_by_the_oldest_cpython_that_it_takes(self):
        program = "import commpool; print(commpool.use_pool.__mro__, commpool.driver_description())"
        run = subprocess.run([_OLDEST, "-c", program], env=_WITH_PATHS, capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_has_no_circle_of_imports(self):
        needed = {path.stem: _imports(path) for path in pathlib.Path(commpool.__file__).parent.glob("*.py")}
        # Late imports count: whoever reads one module must not need another that needs the first.
        while ready := {name for name, needs in needed.items() if not needs & needed.keys()}:
            needed = {name: needs for name, needs in needed.items() if name not in ready}
        self.assertEqual(needed, {})

    def test_tells_of_everything_that_it_offers(self):
        untold = []
        for name in commpool.__all__:
            thing = getattr(commpool, name)
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and not inspect.getdoc(thing):
                untold.append(name)
            if inspect.isclass(thing):
                untold += [f"{name}.{method}" for method, function in inspect.getmembers(thing, inspect.isfunction)
                           if not method.startswith("_") and not inspect.getdoc(function)]
        self.assertEqual(untold, [])

    def test_tells_who_has_torch_that_its_scopes_are_others(self):
        def said(program):
            program = f"import sys, types, commpool; {program}; commpool.use_pool"
            return subprocess.run([sys.executable, "-c", program], env=_WITH_PATHS, stderr=subprocess.PIPE, text=True,
                                  check=True).stderr

        self.assertIn("commpool.torch.use_pool does", said("sys.modules['torch'] = types.ModuleType('torch')"))
        self.assertEqual(said("pass"), "")

    def test_tells_what_everything_takes(self):
        for thing in filter(callable, (getattr(commpool, name) for name in commpool.__all__)):
            inspect.signature(thing)
        scope = inspect.signature(commpool.use_pool).parameters
        self.assertEqual(list(scope), ["pool", "device", "stream", "sizes", "exhaustion", "filter"])
        self.assertEqual((scope["exhaustion"].default, scope["filter"].kind), ("error", inspect.Parameter.KEYWORD_ONLY))
        self.assertEqual(list(inspect.signature(commpool.record_stream).parameters), ["pointer", "stream"])

    def test_tells_those_who_hand_options_on_all_that_a_pool_has(self):
        own, handed_on = set(inspect.signature(commpool.Pool).parameters), set(pool.PoolOptions.__annotations__)
        self.assertEqual((own - handed_on, handed_on - own), ({"name", "device", "symmetric_across", "reserve"}, set()))

    def test_says_what_each_figure_is(self):
        for kind in (commpool.Statistics, commpool.Counter, commpool.Block):
            said = inspect.getdoc(kind)
            for field in getattr(kind, "_fields", None) or [field.name for field in dataclasses.fields(kind)]:
                self.assertRegex(said, rf"\n  {field}: \S")

    def test_says_what_each_call_of_a_pool_raises(self):
        silent = [name for name, function in inspect.getmembers(commpool.Pool, inspect.isroutine)
                  if not name.startswith("_") and "Raises:\n  " not in inspect.getdoc(function)]
        # they raise only what the class documents
        self.assertEqual(silent, ["config", "lost_rank", "reset_peaks", "snapshot", "stats"])
        self.assertIn("Raises:\n  NotFound: by every method", inspect.getdoc(commpool.Pool))

    def test_offers_no_name_twice_and_none_that_is_not_there(self):
        self.assertEqual(len(commpool.__all__), len(set(commpool.__all__)))
        self.assertEqual([name for name in commpool.__all__ if not hasattr(commpool, name)], [])
