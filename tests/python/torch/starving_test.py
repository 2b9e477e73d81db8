"""`commpool run` over a program whose cache has all memory: a process group begins, and what comes after it."""

import os
import unittest

from rank_processes import run_ranks
from routed import LIBRARY


class Starving(unittest.TestCase):
    def test_goes_on_under_run_with_each_allocator(self):
        for allocator in ("native", "expandable", "commpool-fixed", "commpool-expandable"):
            with self.subTest(allocator):
                for code, said, errors in run_ranks(
                        "starving_ranks.py", 2, allocator, under=(os.path.abspath("tools/cli/commpool"), "run", "--"),
                        PYTORCH_CUDA_ALLOC_CONF=f"expandable_segments:{allocator == 'expandable'}",
                        COMMPOOL_LIBRARY=LIBRARY, COMMPOOL_EMULATOR="devices=2,memory=1GiB,nccl=2.29.7"):
                    self.assertEqual(code, 0, errors)
                    cached, right = said.splitlines()
                    self.assertGreater(int(cached.split()[1]), 900, said)
                    self.assertEqual(right, "right 2.0 4096.0 64.0 3.0", errors)
                    self.assertRegex(errors, r"\n  NCCL +cuMemCreate +[1-9]")
