"""Tensors of a pool in another process that has commpool, by tickets."""

import unittest

import torch

from routed import lines_of


class Tickets(unittest.TestCase):
    def lines(self, *words):
        return lines_of(self, "tickets_program.py", *words)

    def check_in_place(self, device):
        there, read, refused, ends = self.lines("in_place", device)
        self.assertEqual((there, read, ends), ("there True", "read [1000.0, 2000.0]", "ends 0"))
        self.assertIn("of shape (2000,) and float32 has 8000 bytes, and <commpool.SharedBlock", refused)

    def test_open_tensors_in_place(self):
        self.check_in_place("0")

    @unittest.skipUnless(torch.cuda.device_count() > 1, "2 devices are needed")
    def test_open_tensors_of_another_device(self):
        self.check_in_place("1")

    def test_show_each_update_as_a_whole(self):
        self.assertEqual(self.lines("updated"), ["sums True", "ends 0"])

    def test_keep_memory_until_both_have_dropped_it(self):
        self.assertEqual(self.lines("freed"), ["held True 3000.0", "dropped 0", "serves True ends 0"])
