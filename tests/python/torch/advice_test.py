"""Advice that follows from measured all-reduces: all ranks follow the slowest one."""

import unittest

from routed import commpool  # noqa: F401  finds the library

import torch

from commpool.torch._advice import Advice, Buckets, Row, best, bucket_sizes, in_windows, placed
from commpool.torch._advise import agreed

_KIB, _MIB = 1 << 10, 1 << 20
# 4 H200s without multicast, microseconds.
_H200 = (Row(8 * _KIB, 13.9, 8.7), Row(32 * _KIB, 15.4, 11.8), Row(128 * _KIB, 16.6, 17.5), Row(4 * _MIB, 43.8, 37.2),
         Row(64 * _MIB, 326, 375))
_MORE_BLOCKS = (Row(8 * _KIB, 13.9, 20), Row(4 * _MIB, 43.8, 30), Row(64 * _MIB, 326, 270))


def without_gains(rows):
    return tuple(Row(row.nbytes, row.plain_us, row.plain_us) for row in rows)


def parameters(*mebibytes):
    """Parameters of these sizes in MiB, which use no memory."""
    return [torch.nn.Parameter(torch.empty(int(size * _MIB) // 4, device="meta")) for size in mebibytes]


class Advised(unittest.TestCase):
    def test_sizes_are_those_below_the_first_that_is_slower(self):
        self.assertEqual(Advice(4, _H200).sizes, (8 * _KIB, 32 * _KIB))

    def test_a_range_ends_where_windows_begin_to_lose(self):
        small, large = Advice(4, _H200).ranges
        self.assertEqual((small[0], large[0]), (8 * _KIB, 4 * _MIB))
        advice = Advice(4, _H200)
        for end in (small[1], large[1]):
            gain = advice.microseconds([end], (0, None)) / advice.microseconds([end], None)
            self.assertAlmostEqual(gain, 0.98, places=4)
        self.assertEqual(Advice(4, _MORE_BLOCKS).ranges, [(4 * _MIB, None)])

    def test_nothing_is_advised_where_windows_gain_nothing(self):
        advice = Advice(2, without_gains(_H200))
        self.assertIsNone(advice.sizes)
        self.assertIn("gain at none", str(advice))

    def test_each_figure_is_the_slowest_rank_s(self):
        advice = agreed(2, [[[8, 1.0, 5.0], [16, 9.0, 2.0]], [[8, 3.0, 4.0], [16, 7.0, 3.0]]])
        self.assertEqual(advice.rows, (Row(8, 3.0, 5.0), Row(16, 9.0, 3.0)))

    def test_times_lie_on_lines_between_the_measured_ones(self):
        advice = Advice(2, (Row(4, 10, 5), Row(8, 20, 7)))
        self.assertEqual(advice.microseconds([2, 6, 8, 16], None), 10 + 15 + 20 + 40)
        self.assertEqual(advice.microseconds([2, 6, 8, 16], (6, 8)), 10 + 6 + 7 + 40)


class BestBuckets(unittest.TestCase):
    def test_keeps_what_is_larger_than_windows_serve_faster_in_torch_s_memory(self):
        chosen = best(parameters(150, 4, 4, 4), [Advice(4, _H200)], 4 * _MIB)
        self.assertEqual((chosen.nbytes, chosen.windows[0], chosen.blocks), (4 * _MIB, 4 * _MIB, 0))
        self.assertEqual(placed([150 * _MIB, 4 * _MIB, 4 * _MIB, 4 * _MIB], chosen.windows),
                         (3, 12 * _MIB, 1, 150 * _MIB))
        self.assertLess(chosen.microseconds, chosen.plain_microseconds)

    def test_takes_the_size_that_reduces_all_buckets_soonest(self):
        rows = (Row(_MIB, 20, 10), Row(8 * _MIB, 50, 40))
        chosen = best(parameters(*[1] * 16), [Advice(2, rows)])
        self.assertEqual((chosen.nbytes, chosen.microseconds), (25 * _MIB, 80))  # 1 MiB gains most, but takes 160
        rows = (Row(_MIB, 20, 2), Row(8 * _MIB, 50, 40))
        self.assertEqual(best(parameters(*[1] * 16), [Advice(2, rows)]).nbytes, _MIB)

    def test_takes_the_communicator_with_more_blocks_where_it_is_faster(self):
        chosen = best(parameters(150, 8, 8), [Advice(4, _H200), Advice(4, _MORE_BLOCKS, 16)])
        self.assertEqual((chosen.windows, chosen.blocks), ((4 * _MIB, None), 16))
        self.assertIn("buckets of 25 MiB, in windows from 4 MiB on, over kernels of at least 16 blocks; ", str(chosen))

    def test_puts_buckets_of_a_size_into_windows_over_the_communicator_that_is_faster_for_them(self):
        advices = [Advice(4, _H200), Advice(4, _MORE_BLOCKS, 16)]
        small = in_windows(parameters(1 / 32, 1 / 32), advices, 32 * _KIB)
        self.assertEqual(small[:5], (32 * _KIB, (0, None), 0, 2 * 11.8, 2 * 15.4))
        large = in_windows(parameters(64, 4), advices, 4 * _MIB)
        self.assertEqual(large[:5], (4 * _MIB, (0, None), 16, 30 + 270, 43.8 + 326))

    def test_is_torch_s_own_where_windows_gain_nothing(self):
        advice = [Advice(2, without_gains(_H200)), Advice(2, without_gains(_H200), 16)]
        chosen = best(parameters(4, 4), advice)
        self.assertEqual(chosen[:3], (25 * _MIB, None, 0))
        self.assertEqual(chosen.microseconds, chosen.plain_microseconds)
        self.assertIn("in windows at no size", str(chosen))

    def test_cuts_as_torch_does_from_the_last_parameter_on(self):
        self.assertEqual(bucket_sizes(parameters(150, 1, 2, 3, 4), 5 * _MIB), [7 * _MIB, 153 * _MIB])
        frozen = parameters(1, 2)
        frozen[0].requires_grad_(False)
        self.assertEqual(bucket_sizes(frozen, _MIB), [2 * _MIB])

    def test_a_size_that_was_given_lies_in_windows_whole(self):
        self.assertEqual(str(Buckets(4 * _MIB)), "buckets of 4 MiB, all in windows")
