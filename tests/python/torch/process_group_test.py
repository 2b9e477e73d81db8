"""PyTorch's ProcessGroupNCCL over the emulated NCCL, with one process for each rank."""

import pathlib
import unittest

from rank_processes import run_ranks

_FOLDER = pathlib.Path(__file__).parent


class ProcessGroup(unittest.TestCase):
    def test_collectives_of_two_ranks_are_right(self):
        for rank, (code, output) in enumerate(run_ranks(_FOLDER / "collectives_rank.py", 2)):
            self.assertEqual(code, 0, f"rank {rank}:\n{output}")
            self.assertIn("all is well", output)


if __name__ == "__main__":
    unittest.main()
