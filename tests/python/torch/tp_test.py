"""Tensor-parallel outputs in windows, by our context and by those of other frameworks: two ranks."""

import unittest

from rank_processes import said_by_ranks


class TensorParallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = said_by_ranks("tp_ranks.py")

    def test_has_its_outputs_in_windows_and_what_is_freed_serves_again(self):
        offset = self.said["eagerly"][0][3]
        self.assertEqual(self.said["eagerly"], [[[True] * 3, None, 8.0, offset, None, 0]] * 2)

    def test_has_them_in_windows_in_a_graph(self):
        self.assertEqual(self.said["in_a_graph"], [[[True] * 3, 8.0, 16.0, 0]] * 2)

    def test_nests_and_refuses_with_the_reason(self):
        for inside, outside, no_windows, nor_here, unserved, left in self.said["nested_and_refused"]:
            self.assertEqual((inside, outside, left), (True, None, 0))
            self.assertIn("symmetric_across=group", no_windows)
            self.assertIn("symmetric_across=communicator", nor_here)
            self.assertIn("call commpool.torch.dropins.serve(communicator, pool)", unserved)

    def test_compares_the_sizes_that_other_frameworks_contexts_serve(self):
        differ = ("the ranks of group 0 have different ranges of sizes: number 0 is 4096 to 1048576 bytes on rank 0 "
                  "and 8192 to 1048576 bytes on rank 1. Nothing was changed")
        self.assertEqual(self.said["served_with_other_sizes"], [[differ, differ, 0]] * 2)

    def test_replaces_vllm_s_context(self):
        self.assertEqual(self.said["as_vllm_does"], [[0, None, 2.0, 0]] * 2)

    def test_replaces_sglang_s_context(self):
        self.assertEqual(self.said["as_sglang_does"], [[0, None, 2.0, 0]] * 2)

    def test_replaces_megatron_s_pools_with_windows_and_without(self):
        self.assertEqual(self.said["as_megatron_does"], [[*[[True, None, 2.0, 1]] * 2, None]] * 2)

    def test_replaces_megatron_s_pools_of_several_groups(self):
        self.assertEqual(self.said["by_several_groups"], [[[True, True, 2.0]] * 2] * 2)

    def test_replaces_megatron_s_registrations_by_hand_and_counts_those_without_windows(self):
        for inside, before, registered, (warning, counted), after in self.said["by_hand"]:
            self.assertEqual((inside, before, registered, after), (True, 0, [1, {}], 0))
            self.assertIn("create_nccl_mem_pool(symmetric=True), or say symmetric=False", warning)
            self.assertEqual(counted, {"nccl_ub without windows": 1})


class Multicast(unittest.TestCase):
    """NVLS takes the outputs: three ranks, because two GPUs have no NVLS, on the emulated multicast."""

    @classmethod
    def setUpClass(cls):
        # An object needs twice the granularity of an allocation, and sizes must follow. nvls_switched_off_test has NVLS
        # off.
        cls.said = said_by_ranks("nvls_ranks.py", ranks=3, NCCL_NVLS_ENABLE="1",
                                 COMMPOOL_EMULATOR="multicast_granularity=4MiB")

    def check(self, place, served):
        for case in ("eagerly", "in_a_graph"):
            for rank, said in enumerate(self.said[case]):
                bound, (eligible, reason), value = (said[place][name] for name in ("bound", "eligible", "value"))
                with self.subTest(case=case, rank=rank):
                    self.assertEqual((bound, eligible, value), (served, served, 3.0))
                    self.assertEqual(reason == "", served, reason)
            kernels = self.said[case][0][place]["kernels"]
            self.assertTrue(kernels, case)
            for symmetric, name in kernels:
                self.assertEqual(symmetric, served, (case, name))

    def test_serves_what_is_made_in_the_context_eagerly_and_in_a_graph(self):
        self.check("inside", served=True)

    def test_does_not_serve_what_is_made_outside_of_it(self):
        self.check("outside", served=False)
