"""DistributedDataParallel with its buckets in windows: two ranks, with torch's own reducer above the emulated NCCL."""

import re
import unittest

from rank_processes import said_by_ranks

_BYTES = 4 * 6 * 65536  # the gradients' bytes
_SMALL = 64 << 10  # what the reducer makes besides


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = said_by_ranks("ddp_ranks.py")

    def check(self, case, inside, moved, most):
        for stock, ours, steps_inside, has_moved, peak, left in (said[case] for said in self.said["trains_as_stock"]):
            self.assertEqual(ours, stock)
            self.assertEqual((steps_inside, has_moved, left), ([inside] * 4, moved, 0))
            self.assertGreaterEqual(peak, _BYTES)
            self.assertLess(peak, most * _BYTES + _SMALL)

    def test_has_gradients_in_windows_from_the_first_step_on(self):
        self.check("by default", inside=True, moved=True, most=2)

    def test_moves_a_static_graph_s_buckets_into_windows(self):
        self.check("with a static graph", inside=True, moved=True, most=2)

    def test_leaves_buckets_where_they_are_if_parameters_may_be_unused(self):
        self.check("with unused parameters", inside=True, moved=False, most=1)

    def test_copies_gradients_into_the_buckets_where_they_are_no_views(self):
        self.check("with gradients of their own", inside=False, moved=True, most=2)

    def test_takes_its_buckets_from_what_was_measured_once(self):
        for rows, same, text, sizes, best, capped, of_tp, left in self.said["advised"]:
            self.assertEqual([row[0] for row in rows], [32 << 10, 1 << 20, 4 << 20])
            self.assertTrue(left == 0 and same and all(min(row[1:]) > 0 for row in rows))
            self.assertEqual((best, capped, of_tp), (True, True, sizes))
            self.assertRegex(text, "over 2 ranks, us: plain, in windows whose kernels have at least 16 blocks")
        self.assertEqual(*[said[0] for said in self.said["advised"]])

    def test_measures_little_on_the_emulator_and_says_so_before(self):
        for sizes, said, then in self.said["measured_on_the_emulator"]:
            self.assertEqual(sizes, [8 << 10, 128 << 10, 1 << 20])
            self.assertRegex(said, "measuring all-reduces of 3 sizes on the 2 ranks of group .*, once")
            self.assertEqual(then, "measured")

    def test_leaves_buckets_that_windows_serve_slower_to_torch_and_counts_them(self):
        for said in self.said["larger_than_windows_serve"]:
            stock, ours, chosen, placed, blocks, in_own_group, held, logged, _, left = said
            self.assertEqual(ours, stock)
            self.assertEqual((chosen[0], chosen[1][0], chosen[2]), (512 << 10, 64 << 10, 16))
            self.assertEqual(placed, [3, _BYTES, 1, 1 << 20])
            self.assertEqual((blocks, in_own_group, held, left), ([16, 64], False, _BYTES, 0))
            self.assertRegex(logged, "gradients of .* in <.*'gradients'.*>, in buckets of 512.KiB, in windows from "
                                     "64.KiB to 750.*, over kernels of at least 16 blocks; all of them are reduced")
        # Rank 0's log of NCCL: symmetric kernels sum the buckets in windows; another kernel sums the other bucket.
        ran = sorted(kernel[:2] for kernel in self.said["larger_than_windows_serve"][0][8])
        self.assertEqual(ran, [[512 << 10, True]] * 3 + [[1 << 20, False]])

    def test_chooses_what_was_not_given(self):
        for said, left in self.said["of_what_is_given"]:
            of_a_size, of_blocks = said[::2], said[1::2]
            self.assertEqual([chosen for chosen, *_ in of_a_size],
                             [[512 << 10, [0, None], blocks] for blocks in (16, 0)])
            self.assertEqual([chosen[2] for chosen, *_ in of_blocks], [16, 16])
            self.assertEqual([own for _, own, _ in said], [False, False, True, False])
            self.assertEqual(([inside for *_, inside in said], left), ([True] * 4, 0))

    def test_refuses_with_the_reason_on_every_rank(self):
        wanted = [("InvalidArgument", "has no windows"),
                  ("InvalidArgument", "lazy_bucket_allocation makes buckets anew"),
                  ("Disagreement", "is nothing on rank 0 and parameter layers.6.weight float32 .65536. on rank 1"),
                  ("FailedPrecondition", "not registered with process group"),
                  ("Disagreement", "bucket of 1MiB on rank 0 and a bucket of 2MiB on rank 1"),
                  *[("FailedPrecondition", "has no NCCL communicator on device . yet")] * 4,  # ddp, tp, advise, Pool
                  ("Disagreement", "ranges of sizes.*1024 to 4096 bytes on rank 0 and 1024 to 8192 bytes on rank 1")]
        for refusals, _, left in self.said["refused"]:
            self.assertEqual(left, 0)
            self.assertEqual([kind for kind, _ in refusals], [kind for kind, _ in wanted])
            for (_, error), (_, pattern) in zip(refusals, wanted):
                self.assertRegex(error, pattern)

    def test_refuses_on_every_rank_what_one_of_them_gave(self):
        (_, heard, _), (_, raised, _) = self.said["refused"]
        reasons = ["blocks -1 is not between 0 and 2^31 - 1", "has no windows", "sizes 'much' is no size",
                   "deadline_ms 'x' is no integer", "got an unexpected keyword argument 'deadlinems'"]
        self.assertEqual([kind for kind, _ in raised], ["InvalidArgument"] * 4 + ["TypeError"])
        self.assertEqual([kind for kind, _ in heard], ["Disagreement"] * 3 + ["InvalidArgument"] * 2)
        for reason, (_, own), (_, told) in zip(reasons, raised, heard):
            self.assertIn(reason, own)
            self.assertRegex(told, "(on rank 0 and refused, for |rank 1 cannot create: ).*" + re.escape(reason))

    def test_names_what_changed_in_the_model_and_goes_on_when_it_is_wrapped_again(self):
        for froze, grew, shrank, inside, left in self.said["changed"]:
            self.assertRegex(froze, "parameter layers.1.weight was frozen, thawed or replaced")
            self.assertRegex(grew, "parameter layers.2.weight is new")
            self.assertRegex(shrank, "parameter layers.1.weight is gone.*ddp.net.module, pool")
            self.assertEqual((inside, left), ([True, True], 0))

    def test_leaves_nothing_in_the_pool_when_it_is_released_though_gradients_stay(self):
        for live, as_before, used, again, no_ddp, joined, left in self.said["released"]:
            self.assertEqual((live, as_before, left), (0, True, 0))
            for error in (used, again):
                self.assertRegex(error, "ddp_release took this model's gradient buckets. Wrap it again")
            self.assertRegex(no_ddp, "^Scales is none of ddp's: call commpool.torch.ddp")
            self.assertRegex(joined, "a rank without inputs reduces in torch's memory.*give all ranks as many batches")

    def test_goes_over_the_group_s_own_communicator_where_nccl_makes_no_other(self):
        for warned, counted, in_own_group, inside, left in self.said["without_more_blocks"]:
            self.assertEqual(len(warned), 1)
            self.assertRegex(warned[0], "NCCL made no communicator whose kernels have at least 24 blocks: invalid")
            self.assertEqual(counted["a communicator with NCCL's number of blocks"], 1)
            self.assertEqual((in_own_group, inside, left), (True, [True, True], 0))

    def test_goes_on_over_another_group_after_a_loss(self):
        self.assertEqual(self.said["after_a_loss"], [[[True, True], [True, True], 0]] * 2)
