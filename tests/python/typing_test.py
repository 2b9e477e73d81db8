"""Strict mypy finds no error in the package or in a program that uses it, and finds a program's mistakes."""

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import unittest

_PACKAGE = pathlib.Path("src/python").resolve()
_PROGRAM = """
import commpool

pool = commpool.Pool("typed", limit="2GiB", mode="expandable", peers=[1])
with commpool.use_pool(pool, sizes=("1MiB", None), exhaustion="next_scope") as entered:
    nbytes: int = entered.allocate("4MiB").nbytes


@commpool.use_pool(pool)
def double(value: int) -> int:
    return 2 * value


answer: int = double(21)
peak: int = pool.stats().reserved_bytes.peak
shape: tuple[int, ...] = commpool.empty((2, 3), "bfloat16").shape
ticket: str = pool.share(pool.allocate(4), mutable=False, imports="sleep_too")
with commpool.Pool.import_(ticket, addresses="same") as shared, shared.block(ticket) as block, block.read():
    address: int = block.pointer + shared.address(block.array((1,), "uint8").pointer)
"""
_MISTAKES = {
    'commpool.Pool(mode="elastic")': 'Argument "mode" to "Pool" has incompatible type',
    'commpool.Pool(size=3)': 'Unexpected keyword argument "size"',
    'commpool.PoolGroup(devices=[0], symmetric_across=[1], size=3)': 'Unexpected keyword argument "size"',
    'commpool.use_pool(3)': 'Argument 1 to "use_pool" has incompatible type',
    'pool.share(imports="told")': 'Argument "imports" to "share" of "Sharer" has incompatible type',
    'double("a")': 'Argument 1 to "double" has incompatible type',
}


def mypy():
    """The program mypy from the environment with torch, else from the system; None if there is none."""
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir  # tests have no HOME
    cache = pathlib.Path(os.environ.get("COMMPOOL_CACHE") or pathlib.Path(home, ".cache/commpool"))
    folders = [os.environ.get("COMMPOOL_TORCH", ""), *sorted(map(str, cache.glob("torch-*")))]
    found = [os.path.join(folder, "bin/mypy") for folder in folders if folder]
    return next(filter(os.path.exists, found), None) or shutil.which("mypy")


@unittest.skipUnless(mypy(), "there is no mypy: COMMPOOL_TORCH names no environment that has it")
class Types(unittest.TestCase):
    def check(self, *arguments):
        cache = self.enterContext(tempfile.TemporaryDirectory())
        return subprocess.run([mypy(), "--strict", "--cache-dir", cache, *arguments], cwd=_PACKAGE, capture_output=True,
                              text=True, check=False)

    def check_program(self, program):
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "program.py")
        file.write_text(program, encoding="utf-8")
        return self.check(str(file))

    def test_of_the_package_are_strict(self):
        result = self.check("-p", "commpool", "--exclude", "commpool/torch/")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_serve_a_program(self):
        result = self.check_program(_PROGRAM)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_find_a_programs_mistakes(self):
        result = self.check_program(_PROGRAM + "\n".join(_MISTAKES))
        for message in _MISTAKES.values():
            self.assertIn(message, result.stdout)
