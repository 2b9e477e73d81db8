"""What follows from measured all-reduces, and that all ranks follow the slowest one."""

import unittest

from routed import commpool  # noqa: F401  finds the library

from commpool.torch._advise import Advice, Row, agreed

_KIB, _MIB = 1 << 10, 1 << 20
# 4 H200s without multicast, microseconds.
_H200 = (Row(8 * _KIB, 13.9, 8.7), Row(32 * _KIB, 15.4, 11.8), Row(128 * _KIB, 16.6, 17.5), Row(4 * _MIB, 43.8, 37.2),
         Row(64 * _MIB, 326, 375))


class Advised(unittest.TestCase):
    def test_sizes_are_those_below_the_first_that_is_slower(self):
        self.assertEqual(Advice(4, _H200).sizes, (8 * _KIB, 32 * _KIB))

    def test_buckets_are_as_large_as_windows_gain(self):
        self.assertEqual(Advice(4, _H200).bucket_bytes, 4 * _MIB)

    def test_nothing_is_advised_where_windows_gain_nothing(self):
        advice = Advice(2, tuple(Row(row.nbytes, row.plain_us, row.plain_us) for row in _H200))
        self.assertIsNone(advice.sizes)
        self.assertEqual(advice.bucket_bytes, 25 * _MIB)
        self.assertIn("gain at none", str(advice))

    def test_each_figure_is_the_slowest_rank_s(self):
        advice = agreed(2, [[[8, 1.0, 5.0], [16, 9.0, 2.0]], [[8, 3.0, 4.0], [16, 7.0, 3.0]]])
        self.assertEqual(advice.rows, (Row(8, 3.0, 5.0), Row(16, 9.0, 3.0)))


if __name__ == "__main__":
    unittest.main()
