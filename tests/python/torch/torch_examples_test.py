"""The examples for PyTorch print what they show, on the emulator."""

import os
import pathlib
import subprocess
import sys
import unittest

from rank_processes import unused_port

_EXAMPLES = pathlib.Path("examples/python/torch")
_SECONDS = 250


def run(name, ranks=1):
    """What the ranks of an example print, a line each, in order."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port(), "WORLD_SIZE": str(ranks),
              "COMMPOOL_LIBRARY": os.path.abspath("src/c_api/libcommpool.so.0")}
    processes = [subprocess.Popen([sys.executable, str(_EXAMPLES / name)], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(ranks)]
    lines = []
    for process in processes:
        out, errors = process.communicate(timeout=_SECONDS)
        if process.returncode or "broken rule" in errors:
            raise AssertionError(f"{name} ended with {process.returncode}:\n{out}\n{errors}")
        lines += out.splitlines()
    return lines


class Examples(unittest.TestCase):
    def test_are_all_tried(self):
        self.assertEqual({file.name for file in _EXAMPLES.glob("*.py")},
                         {"backward.py", "whole_allocator.py", "symmetric.py"})

    def test_backward(self):
        lines = run("backward.py")
        self.assertEqual(lines[:2], ["weights:  torch's own memory", "gradient: the pool"])
        self.assertRegex(lines[2], "torch counts .* of which the pool has [48]")
        self.assertIn("0 B in use of 0 B reserved", lines[3])

    def test_whole_allocator(self):
        lines = run("whole_allocator.py")
        self.assertRegex(lines[0], r"tensors have \d+ MiB, at most \d+")
        self.assertEqual(lines[1:], ["all of it in the pool: True", "torch's own again: True"])

    def test_symmetric(self):
        self.assertEqual(run("symmetric.py", ranks=2), ["rank 0: offset 0 of its window, sum 2",
                                                        "rank 1: offset 0 of its window, sum 2"])


if __name__ == "__main__":
    unittest.main()
