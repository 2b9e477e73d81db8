"""Every tenth operation that PyTorch samples itself has the values of the CPU (op_info.py compares all)."""

import unittest

import op_info


class OpInfo(unittest.TestCase):
    def check(self, type_name):
        seen = list(op_info.compared(type_name, 10))
        self.assertEqual([(name, wrong) for name, wrong in seen if wrong], [])
        self.assertGreater(sum(wrong is not None for _, wrong in seen), 40)

    def test_every_tenth_is_right_in_floats(self):
        self.check("float32")

    def test_every_tenth_is_right_in_short_floats(self):
        self.check("bfloat16")
