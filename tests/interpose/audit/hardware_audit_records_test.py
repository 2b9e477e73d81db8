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


class Memory(unittest.TestCase):
    def lines(self, arrays=900, left=0, asked=256, held=256, trimmed=0):
        def line(reason, row=None, in_graphs=0):
            rows = [{"what": row[0], row[1]: row[2] * _MIB}] if row else []
            return {"reason": reason, "rows": rows, "devices": [{"in_graphs": in_graphs * _MIB}]}

        return [line("step arrays", ("arrays", "bytes_now", arrays)),
                line("step arrays gone", ("arrays", "bytes_now", left)),
                line("step graph", ("in graphs", "bytes_made", asked), held),
                line("step graph gone", in_graphs=trimmed)]

    def test_of_arrays_and_graphs_that_is_attributed_is_right(self):
        self.assertEqual(records.wrong_memory(self.lines()), [])

    def test_that_is_missing_is_named(self):
        for wrong, sentence in (({"arrays": 800}, "less than their elements"), ({"left": 2}, "gone hold"),
                                ({"asked": 0}, "not a graph's"), ({"held": 0}, "less for graphs"),
                                ({"trimmed": 2}, "after a trim")):
            found, = records.wrong_memory(self.lines(**wrong))
            self.assertIn(sentence, found)
