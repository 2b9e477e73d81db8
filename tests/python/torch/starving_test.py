"""`commpool run` over a program whose cache has all memory: a process group begins, and what comes after it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from routed import LIBRARY

_CLI = os.path.abspath("tools/cli/commpool")
_PROGRAM = str(pathlib.Path(__file__).with_name("starving_ranks.py"))
_RANKS = 2


def ranks_of(allocator, under=("run", "--")):
    """[(exit code, stdout, stderr)] of each."""
    variables = {**os.environ, "COMMPOOL_LIBRARY": LIBRARY, "COMMPOOL_EMULATOR": "devices=2,memory=1GiB,nccl=2.29.7"}
    if allocator == "expandable":
        variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    with tempfile.TemporaryDirectory() as folder:
        words = [_CLI, *under, sys.executable, "-B", _PROGRAM]
        ranks = [subprocess.Popen([*words, str(rank), str(_RANKS), f"{folder}/store", allocator], env=variables,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(_RANKS)]
        try:
            return [(rank.returncode, *output) for rank, output in
                    ((rank, rank.communicate(timeout=200)) for rank in ranks)]
        finally:
            for rank in ranks:
                rank.kill()


class Starving(unittest.TestCase):
    def test_goes_on_under_run_with_each_allocator(self):
        for allocator in ("native", "expandable", "commpool-fixed", "commpool-expandable"):
            with self.subTest(allocator):
                for code, said, errors in ranks_of(allocator):
                    self.assertEqual(code, 0, errors)
                    cached, right = said.splitlines()
                    self.assertGreater(int(cached.split()[1]), 900, said)
                    self.assertEqual(right, "right 2.0 4096.0 64.0 3.0", errors)
                    self.assertRegex(errors, r"\n  NCCL +cuMemCreate +[1-9]")


if __name__ == "__main__":
    unittest.main()
