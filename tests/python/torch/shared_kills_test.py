"""A process that is killed while it shares tensors of a pool takes nothing with it, and leaves nothing."""

import unittest

from routed import lines_of

KILLS = 6  # twice at each stage; hardware_sharing.py has more


class SharedKills(unittest.TestCase):
    def lines(self, side):
        return lines_of(self, "shared_kills_program.py", side, str(KILLS))

    @staticmethod
    def at_stages():
        """How many of the kills come at each of the three stages."""
        return [len(range(stage, KILLS, 3)) for stage in range(3)]

    def test_of_importers_leave_the_exporter_its_tensor(self):
        began, asked, answered = self.at_stages()
        self.assertEqual(self.lines("importers"), [
            f"began, {began}, None",
            f"asked, {asked}, None",
            f"answered, {answered}, 1000.0",
            "left {'descriptors': 0, 'bytes': 0}",
            "blocks 1 segments 1",
        ])

    def test_of_exporters_leave_importers_what_they_opened(self):
        began, asked, answered = self.at_stages()
        of_began, of_asked, *rest = self.lines("exporters")
        self.assertEqual(of_began, f"began, {began}, None")
        self.assertRegex(of_asked, f"asked, {asked}, refused: [^,]+$", "a dead process's handle opens nothing")
        self.assertEqual(rest, [f"answered, {answered}, 2000.0", "left {'descriptors': 0, 'bytes': 0}"])
