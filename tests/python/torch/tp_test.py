"""Tensor-parallel outputs in windows, by our context and by those of other frameworks: two ranks."""

import pathlib
import unittest

from rank_processes import said_by_ranks

_RANKS = pathlib.Path(__file__).with_name("tp_ranks.py")


class TensorParallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = said_by_ranks(_RANKS)

    def test_has_its_outputs_in_windows_and_what_is_freed_serves_again(self):
        offsets = set()
        for inside, result_inside, value, offset, small, left in self.said["eagerly"]:
            self.assertEqual((inside, result_inside, value, small, left), ([True] * 3, False, 8.0, None, 0))
            offsets.add(offset)
        self.assertEqual(len(offsets), 1)

    def test_has_them_in_windows_in_a_graph(self):
        self.assertEqual(self.said["in_a_graph"], [[[True] * 3, 8.0, 16.0, 0]] * 2)

    def test_nests_and_refuses_with_the_reason(self):
        for inside, outside, no_windows, nor_here, unserved, left in self.said["nested_and_refused"]:
            self.assertEqual((inside, outside, left), (True, None, 0))
            self.assertIn("symmetric_across=group", no_windows)
            self.assertIn("symmetric_across=communicator", nor_here)
            self.assertIn("call commpool.torch.dropins.serve(communicator, pool)", unserved)

    def test_replaces_vllm_s_context(self):
        self.assertEqual(self.said["as_vllm_does"], [[0, None, 2.0, 0]] * 2)

    def test_replaces_sglang_s_context(self):
        self.assertEqual(self.said["as_sglang_does"], [[0, None, 2.0, 0]] * 2)

    def test_replaces_megatron_s_pools_with_windows_and_without(self):
        self.assertEqual(self.said["as_megatron_does"], [[[True, None, 2.0, 1]] * 2] * 2)


if __name__ == "__main__":
    unittest.main()
