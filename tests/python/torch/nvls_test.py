"""NVLS takes tensor-parallel outputs: three ranks, because two GPUs have no NVLS, on the emulated multicast."""

import pathlib
import unittest

from rank_processes import said_by_ranks

_RANKS = pathlib.Path(__file__).with_name("nvls_ranks.py")


class Multicast(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # An object needs twice the granularity of an allocation, and sizes must follow. nvls_switched_off_test has NVLS
        # off.
        cls.said = said_by_ranks(_RANKS, ranks=3, NCCL_NVLS_ENABLE="1",
                                 COMMPOOL_EMULATOR="multicast_granularity=4MiB")

    def test_serves_what_is_made_in_the_context_eagerly_and_in_a_graph(self):
        for case in ("eagerly", "in_a_graph"):
            for rank, said in enumerate(self.said[case]):
                with self.subTest(case=case, rank=rank):
                    inside = said["inside"]
                    self.assertEqual((inside["bound"], inside["eligible"], inside["value"]), (True, [True, ""], 3.0))
            kernels = self.said[case][0]["inside"]["kernels"]
            self.assertTrue(kernels, case)
            for symmetric, name in kernels:
                self.assertTrue(symmetric, (case, name))

    def test_does_not_serve_what_is_made_outside_of_it(self):
        for case in ("eagerly", "in_a_graph"):
            for rank, said in enumerate(self.said[case]):
                with self.subTest(case=case, rank=rank):
                    outside = said["outside"]
                    self.assertEqual((outside["bound"], outside["eligible"][0], outside["value"]), (False, False, 3.0))
            kernels = self.said[case][0]["outside"]["kernels"]
            self.assertTrue(kernels, case)
            for symmetric, name in kernels:
                self.assertFalse(symmetric, (case, name))


if __name__ == "__main__":
    unittest.main()
