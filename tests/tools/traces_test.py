"""Synthesised traces are traces: the same for a seed, and freed blocks live. Histories become traces event by event."""

import lzma
import pathlib
import random
import tempfile
import unittest

import programs
import record
import synthesise
import trace_writer
from trace_text import read_trace


class Synthesised(unittest.TestCase):
    def test_every_program_makes_a_trace_that_comes_back_to_what_lives_long(self):
        for name in programs.PROGRAMS:
            with self.subTest(name):
                trace = synthesise.synthesise(name, seed=3, steps=2)
                at_end, *found = read_trace(trace.text())
                self.assertEqual(found, [trace.peak_requested, len(trace)])
                self.assertLess(at_end, trace.peak_requested)

    def test_the_seed_decides_and_nothing_else(self):
        first = synthesise.synthesise("experts", seed=1, steps=2).text()
        random.seed(99)
        self.assertEqual(synthesise.synthesise("experts", seed=1, steps=2).text(), first)
        self.assertNotEqual(synthesise.synthesise("experts", seed=2, steps=2).text(), first)

    def test_steps_repeat_where_shapes_are_fixed(self):
        two, three = (len(synthesise.synthesise("checkpointing_fixed", 1, steps).live()) for steps in (2, 3))
        self.assertEqual(two, three)

    def test_programs_with_communication_use_other_streams(self):
        text = synthesise.synthesise("pipeline", 1, 1).text()
        self.assertGreater(len({line.split()[3] for line in text.splitlines() if line.startswith("a ")}), 1)

    def test_files_are_written_plain_or_compressed(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for plain in ([], ["--plain"]):
            synthesise.main(["--out", str(folder), "--steps", "1", "--seed", "4", *plain, "unet"])
        compressed = lzma.decompress((folder / "unet_4.trace.xz").read_bytes())
        self.assertEqual(compressed, (folder / "unet_4.trace").read_bytes())


class Recorded(unittest.TestCase):
    def test_a_history_becomes_its_allocations_and_frees(self):
        events = [
            {"action": "free_requested", "addr": 1, "size": 8, "stream": 0},  # older than the history
            {"action": "segment_alloc", "addr": 4096, "size": 2 << 20, "stream": 77},
            {"action": "alloc", "addr": 4096, "size": 1000, "stream": 77},
            {"action": "alloc", "addr": 8192, "size": 24, "stream": 0},
            {"action": "free_requested", "addr": 4096, "size": 1000, "stream": 77},
            {"action": "free_completed", "addr": 4096, "size": 1000, "stream": 77},
            {"action": "alloc", "addr": 4096, "size": 5, "stream": 77},
        ]
        trace = record.write_history(events, trace_writer.Trace())
        self.assertEqual(trace.text().splitlines()[1:], ["a 0 1000 0", "a 1 24 1", "f 0", "a 2 5 0"])
        self.assertEqual(trace.peak_requested, 1024)

    def test_a_block_of_no_bytes_is_refused(self):
        self.assertRaises(ValueError, trace_writer.Trace().allocate, 0)
