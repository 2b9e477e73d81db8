"""How hardware_audit.py judges."""

import unittest

import hardware_audit_records as records

_MIB = 1 << 20


class Verdict(unittest.TestCase):
    def test_allows_64_mib_or_1_percent(self):
        self.assertEqual(records.verdict(1000 * _MIB, 936 * _MIB), "right")
        self.assertEqual(records.verdict(1000 * _MIB, 935 * _MIB), "wrong")
        self.assertEqual(records.verdict(1000 * _MIB, 1065 * _MIB), "wrong")
        self.assertEqual(records.verdict(10000 * _MIB, 9900 * _MIB), "right")
        self.assertEqual(records.verdict(10000 * _MIB, 9899 * _MIB), "wrong")

    def test_needs_a_start_before_the_context(self):
        device = {"device": 0, "used": _MIB, "attributed": _MIB, "context_known": False}
        lines = [{"reason": "step 0", "rank": 1, "devices": [device]}, {"reason": "exit", "devices": [device]}]
        self.assertEqual([step["verdict"] for step in records.steps(lines)], ["no start"])
        self.assertFalse(records.all_right(records.steps(lines)))

    def test_of_no_step_at_all_is_not_right(self):
        self.assertFalse(records.all_right([]))
        self.assertTrue(records.all_right([{"verdict": "right"}]))


if __name__ == "__main__":
    unittest.main()
