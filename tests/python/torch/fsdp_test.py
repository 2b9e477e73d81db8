"""FSDP2 with its all-gathers in windows: two ranks, with torch's own code above the emulated NCCL."""

import unittest

from rank_processes import said_by_ranks

_LAYER = 4 * 4096
_GATHERS = 2 * 4 * 3  # forward and backward of 4 layers in 3 steps


class Fsdp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = said_by_ranks("fsdp_ranks.py")

    def test_trains_as_without_and_gathers_into_a_ring_of_two(self):
        for stock, ours, buffers, nbytes, taken, held, left, goes_on in self.said["trains_as_stock"]:
            self.assertEqual(ours, stock)
            self.assertEqual((buffers, nbytes, taken, held), (2, _LAYER, _GATHERS, 2 * _LAYER))
            self.assertEqual((left, goes_on), (0, True), "after fsdp_release")

    def test_ranks_keep_equal_weights(self):
        weights = [ours[1] for _, ours, *_ in self.said["trains_as_stock"]]
        self.assertEqual(weights[0], weights[1])
        self.assertNotEqual(weights[0], [2.0] * 4)

    def test_reduces_from_windows_and_leaves_the_gradient_to_torch(self):
        for stock, ours, held, (forced, reductions), gradient_is_torch_s, left in self.said["reduces_in_windows"]:
            self.assertEqual(ours, stock)
            self.assertEqual((forced, len(reductions)), ([True], 4))
            for operation in reductions:
                self.assertRegex(operation, "SUM")
            self.assertEqual((held, gradient_is_torch_s, left), (4 * _LAYER, True, 0))

    def test_takes_as_many_buffers_as_modules_are_gathered_ahead(self):
        for stock, ours, buffers, left in self.said["prefetches_further"]:
            self.assertEqual(ours, stock)
            self.assertEqual((buffers, left), (3, 0))

    def test_gathers_by_copy_engines_and_never_on_the_legacy_stream(self):
        for policy, gathers, on_legacy_stream, *_ in self.said["gathered_by_hand"]:
            self.assertEqual((policy, gathers, on_legacy_stream), (2, 1, False))  # NCCL_CTA_POLICY_ZERO

    def test_says_on_every_rank_that_all_buffers_are_in_use_and_goes_on(self):
        for _, _, _, total, error, as_stock, left in self.said["gathered_by_hand"]:
            self.assertEqual((total, as_stock, left), (2.0 * 4096, True, 0))
            self.assertRegex(error, "all-gather number 3 needs a buffer, and all 2 in .* are in use.*buffers=3 or more")

    def test_says_of_a_checkpoint_around_the_whole_model_what_to_do(self):
        for error in self.said["checkpointed_whole"]:
            self.assertRegex(error, "all-gather number .* are in use: .* checkpoint each by itself")

    def test_gathers_over_two_groups_where_layers_stay_gathered_by_halves(self):
        for stock, ours, taken, left in said_by_ranks("fsdp_ranks.py", "four", ranks=4)["reshards_to_fewer"]:
            self.assertEqual(ours, stock)
            self.assertEqual((taken, left), (_GATHERS, 0))

    def test_says_and_counts_that_a_torch_cannot_ask_for_copy_engines(self):
        for counted, warned in self.said["without_copy_engines"]:
            self.assertEqual((counted["all-gathers with SMs"], len(warned)), (2, 1))
            self.assertRegex(warned[0], "knows no CTA policy of NCCL: all-gathers in windows run as kernels")

    def test_refuses_what_would_not_work_on_all_ranks_alike(self):
        for *refusals, alone, allocated in self.said["refused"]:
            self.assertEqual([kind for kind, _ in refusals],
                             ["InvalidArgument", "InvalidArgument", "Disagreement", "Disagreement", "InvalidArgument"])
            for (_, error), wanted in zip(refusals, ["is not sharded: call .*fully_shard", "has no windows",
                                                     "number 1 is layers.1, 16384 .* rank 0 .* 32768 .* rank 1",
                                                     "2 buffers on rank 0 and 3 buffers on rank 1", "less than 1"]):
                self.assertRegex(error, wanted)
            self.assertRegex(alone[1], "(on rank 0 and refused, for )?buffers -1 is not between 0 and")
            self.assertEqual(allocated, 0)

    def test_names_what_changed_after_the_model_was_wrapped(self):
        for grown, gone, again, as_stock, left in self.said["changed"]:
            self.assertRegex(grown, "needs 32.KiB, and its buffers .* have 16.KiB: the model was changed after")
            self.assertRegex(gone, "buffers of an FSDP all-gather were given back")
            self.assertRegex(again, "has no ring: call commpool.torch.fsdp")
            self.assertEqual((as_stock, left), (True, 0))

    def test_refuses_a_step_of_a_model_of_which_a_module_was_sharded_later(self):
        for as_stock, error, gathers, left in self.said["sharded_later"]:
            self.assertRegex(error, "module layers.4 was sharded since, and would gather in torch's memory.*release")
            # The new one is its own root: torch does not gather it a second time in backward.
            self.assertEqual((as_stock, gathers, left), (True, 9, 0))

    def test_loses_its_own_communicator_with_the_group_s(self):
        self.assertEqual(self.said["abandoned"], [[True, True, "NotFound", "NotFound"]] * 2)
