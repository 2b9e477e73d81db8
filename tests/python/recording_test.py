"""Recordings from Python: begun and ended, with stacks, of one pool."""

import os
import pathlib
import subprocess
import sys
import tempfile

import emulated
import commpool
from emulated import MIB


class Recordings(emulated.Case):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.pool = self.make_pool("recorded")

    def written(self):
        """The bytes of the newest file."""
        return max(pathlib.Path(self.folder).iterdir(), key=lambda file: file.stat().st_mtime_ns).read_bytes()

    def test_has_what_happens_between_its_begin_and_its_end(self):
        with commpool.record(self.folder):
            self.allocate_from_here().free()
        self.assertIn(b"recorded", self.written())

    def test_shows_where_the_program_asked(self):
        with commpool.record(self.folder, stacks="python"):
            self.allocate_from_here().free()
        self.assertRegex(self.written(), rb"recording_test\.py:\d+ allocate_from_here\n")

    def test_names_the_script_as_the_program(self):
        script = pathlib.Path(self.folder, "train.py")
        script.write_text("import commpool; commpool.Pool()", encoding="utf-8")
        subprocess.run([sys.executable, "-W", "error", script], check=True, timeout=60, env={
            **os.environ, "COMMPOOL_RECORD": self.folder, "PYTHONPATH": emulated.PACKAGE})
        self.assertIn(b"train.py", self.written())

    def allocate_from_here(self):
        return self.pool.allocate(3 * MIB, emulated.Stream())

    def test_of_a_pool_leaves_others_out(self):
        self.make_pool("left out")
        with self.pool.record(self.folder):
            pass
        self.assertIn(b"recorded", self.written())
        self.assertNotIn(b"left out", self.written())

    def test_refuses_what_it_cannot_do(self):
        self.assertInvalid("1 MiB is the least", commpool.record, self.folder, limit="64KiB")
        self.assertInvalid("stacks 'c' is none of none, python, native", commpool.record, self.folder, stacks="c")
        with commpool.record(self.folder) as recording:
            self.assertRaises(commpool.FailedPrecondition, commpool.record, self.folder)
            recording.end()
            recording.end()
