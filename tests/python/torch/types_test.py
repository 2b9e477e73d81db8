"""commpool.torch has all names of commpool, and strict mypy finds no error in it with torch's own types."""

import importlib.util
import inspect
import pathlib
import subprocess
import sys
import tempfile
import unittest

from routed import commpool

import commpool as plain


_PROGRAM = """
import torch
import commpool.torch as commpool

pool = commpool.Pool("typed", agreement="store", call_lines=True, limit="2GiB")
own: bool = pool.abandons_itself
installed: bool = commpool.install(default=pool)
net: torch.nn.Module = commpool.ddp(torch.nn.Linear(4, 4), pool, blocks=16)
model: torch.nn.Linear = commpool.fsdp(torch.nn.Linear(4, 4), pool)
with commpool.use_pool(pool, sizes=commpool.advise().sizes), commpool.tp(pool):
    array: commpool.Array = commpool.empty(4, "bfloat16")
with pool.update(torch.empty(4)), commpool.Pool.import_(pool.share()).block("ticket") as block:
    tensor: torch.Tensor = commpool.Pool.import_("ticket").block("ticket").tensor(4, torch.bfloat16)
made: torch.cuda.MemPool = commpool.mem_pool(name="graphs", device="cuda:0", reserve="1GiB", mode="fixed", peers=[1])
"""
_MISTAKES = {
    'commpool.mem_pool(mode="elastic")': 'Argument "mode" to "mem_pool" has incompatible type',
    'commpool.mem_pool(size=3)': 'Unexpected keyword argument "size"',
    'commpool.mem_pool(symmetric_across=1)': 'Unexpected keyword argument "symmetric_across"',
}


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
    def test_of_commpool_torch_are_strict_and_serve_a_program(self):
        with tempfile.TemporaryDirectory() as cache:
            def check(*what):
                command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *what]
                return subprocess.run(command, cwd=pathlib.Path("src/python").resolve(), capture_output=True, text=True,
                                      check=False)

            for what in (["-p", "commpool.torch"], ["-c", _PROGRAM]):
                run = check(*what)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            found = check("-c", _PROGRAM + "\n".join(_MISTAKES)).stdout
            for message in _MISTAKES.values():
                self.assertIn(message, found)
