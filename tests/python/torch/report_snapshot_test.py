"""The snapshot of `commpool report` in PyTorch's own readers: its totals are those of the program that was recorded."""

import base64
import contextlib
import io
import json
import os
import pickle
import re
import subprocess
import tempfile
from unittest import mock

from torch.cuda import _memory_viz

from routed import MIB, RoutedCase, commpool, tensor

_CLI = os.path.abspath("tools/cli/commpool")


def make_kept():
    return [tensor(3 * MIB), tensor(5 * MIB + 1000)]


def make_passing():
    return tensor(7 * MIB)


def summed(flames, word):
    """The bytes of the lines with a word that a flame graph is drawn of."""
    return sum(int(line.rsplit(" ", 1)[1]) for line in flames.splitlines() if word in line)


class ReportedSnapshot(RoutedCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.recordings = os.path.join(self.folder, "first")
        # Sizes as they are, not rounded for people.
        self.enterContext(mock.patch.object(_memory_viz, "_format_size", str))

    def reported(self):
        path = os.path.join(self.folder, "snapshot.pickle")
        run = subprocess.run([_CLI, "report", self.recordings, "--as", "snapshot", "--output", path],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(path, "rb") as file:
            return pickle.load(file)

    def record(self, **options):
        """A pool of which two tensors stay and one goes; the tensors, and the snapshot."""
        pool = self.pool("recorded", **options)
        with pool.record(self.recordings, stacks="python"), commpool.use_pool(pool):
            kept = make_kept()
            make_passing()
        return pool, kept, self.reported()

    def check_sums(self, mode):
        pool, kept, snapshot = self.record(mode=mode)
        reserved, requested = pool.stats().reserved_bytes.current, sum(one.nbytes for one in kept)
        text = _memory_viz.segsum(snapshot)
        self.assertIn(f"\ntotal_reserved: {reserved}\n", text)
        self.assertIn(f"\ntotal_allocated: {requested}\n", text)
        self.assertRegex(text, rf"\ntotal_free: {reserved - requested} \(\d+\.\d% internal\)\n")
        flames = _memory_viz.memory(snapshot, format_flamegraph=str)
        self.assertEqual(summed(flames, "stream_"), reserved)
        self.assertEqual(summed(flames, ":make_kept"), requested)
        self.assertEqual(summed(flames, "make_passing"), 0)
        self.assertEqual(_memory_viz.segments(snapshot, format_flamegraph=str).count("make_kept"), len(kept))

    def test_has_the_sums_of_the_pool(self):
        self.check_sums("fixed")

    def test_has_the_sums_of_an_expandable_pool(self):
        self.check_sums("expandable")

    def test_tells_each_tensors_life_with_its_segment(self):
        pool, kept, snapshot = self.record()
        lines = _memory_viz.trace(snapshot).splitlines()
        segments = {segment.pointer: segment.bytes for segment in pool.snapshot().segments}
        made = {int(address): int(size) for address, size in
                (re.search(r" = cudaMalloc\((\d+), (\d+)\)", line).groups() for line in lines if "cudaMalloc" in line)}
        self.assertEqual(made, segments)
        for one in kept:
            begin = max(address for address in segments if address <= one.data_ptr())
            self.assertTrue([line for line in lines if f"[{one.data_ptr() - begin}:" in line], "\n".join(lines))
        self.assertEqual(len([line for line in lines if line.startswith("del ")]), 1)
        self.assertEqual(len([line for line in lines if line.startswith("# free completed for ")]), 1)

    def test_of_two_moments_differs_by_the_segments_between_them(self):
        _, _, before = self.record()
        pool = self.pool("later")
        self.recordings = os.path.join(self.folder, "second")
        with commpool.record(self.recordings), commpool.use_pool(pool):
            later = tensor(40 * MIB)
        after = self.reported()
        segment, = pool.snapshot().segments
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            flames = _memory_viz.compare(before["segments"], after["segments"], format_flamegraph=str)
        self.assertEqual(said.getvalue(), f"only_before = []\nonly_after = [{segment.pointer}]\n")
        self.assertEqual(summed(flames, "only_after"), segment.bytes)
        self.assertEqual(summed(flames, "active_allocated"), segment.bytes, f"{later.nbytes} and its rounding")

    def test_goes_whole_into_the_pages_of_memory_viz(self):
        _, _, snapshot = self.record()
        for draw in (_memory_viz.trace_plot, _memory_viz.segment_plot):
            file, = json.loads(re.search(r"const local_files = (.*)", draw(snapshot))[1])
            self.assertEqual(pickle.loads(base64.b64decode(file["base64"])), snapshot)
