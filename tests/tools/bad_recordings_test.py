"""Recordings that `commpool report` cannot read whole, and programs that cannot record: what both say, and go on."""

import glob
import os
import subprocess
import unittest

import cli
import small_disk

_WRITER = os.path.abspath("tests/report/example_recordings")
_PAGE = 64 << 10
_VERSION = 4  # where a file has the version of its format


class BadRecordings(cli.TracesTest):
    def setUp(self):
        super().setUp()
        self.recordings = os.path.join(self.folder, "recordings")
        self.page = os.path.join(self.folder, "report.html")

    def record(self, ranks=2, events=20000):
        """The files of a program that was never run, by rank."""
        subprocess.run([_WRITER, self.recordings, str(ranks), str(events)], check=True, timeout=60)
        return sorted(glob.glob(os.path.join(self.recordings, "*.recording")))

    def change(self, path, offset, byte):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(bytes([byte]))

    def report(self, *options):
        return cli.run("report", self.recordings, "--output", self.page, *options)

    def test_a_recording_that_was_cut_is_shown_up_to_there(self):
        for path in self.record():
            os.truncate(path, os.path.getsize(path) // 2 // _PAGE * _PAGE + 1000)
        result = self.report()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("damaged", result.stdout)
        whole = self.report("--as", "trace").stdout
        self.assertRegex(whole, r"\d+,?\d* allocations")

    def test_a_recording_that_was_cut_in_its_first_page_is_named(self):
        first, _ = self.record()
        for left, sentences in ((1000, ["rank 0: the recording has no entries"]),
                                (20, [f'not shown: "{first}"', "rank 0 left no recording"])):
            os.truncate(first, left)
            result = self.report()
            self.assertEqual(result.returncode, 0, result.stderr)
            for sentence in sentences:
                self.assertIn(sentence, result.stdout)

    def test_a_recording_of_a_later_version_is_named_and_the_others_are_shown(self):
        first, _ = self.record()
        self.change(first, _VERSION, 9)
        result = self.report()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, rf'not shown: "{first}".* version 9')

    def test_a_folder_of_a_later_version_alone_is_an_error(self):
        for path in self.record():
            self.change(path, _VERSION, 9)
        result = self.report()
        self.assertEqual(result.returncode, 4)
        self.assertIn("version 9", result.stderr)
        self.assertFalse(os.path.exists(self.page))


class CannotRecord(cli.TracesTest):
    """Programs that are asked to record and cannot: they do what they do without."""

    def setUp(self):
        super().setUp()
        lines = [f"a {block} {2 << 20} 0\nf {block}\n" for block in range(20000)]
        self.trace = self.write("some.trace", "".join(lines))
        self.recordings = os.path.join(self.folder, "recordings")

    def run_on_a_full_disk(self, script):
        """In a name space of mounts, where the folder of the recordings has room for two pages."""
        os.mkdir(self.recordings)
        script = f'mount -t tmpfs -o size=128k none "{self.recordings}" && {script}'
        unshare = small_disk.may_mount(self)
        environment = {**os.environ, "COMMPOOL_DRIVER": "emulated"}
        return subprocess.run([*unshare, "sh", "-c", script], env=environment, capture_output=True, text=True,
                              timeout=120, check=False)

    def test_with_a_full_disk(self):
        page = os.path.join(self.folder, "report.html")
        result = self.run_on_a_full_disk(
            f'COMMPOOL_RECORD="{self.recordings}" "{cli.CLI}" replay "{self.trace}" --json && '
            f'"{cli.CLI}" report "{self.recordings}" --output "{page}"')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"events": 40000', result.stdout)
        self.assertEqual(result.stderr.count("the recording is not whole"), 1, result.stderr)
        self.assertIn("No space left on device", result.stderr)
        self.assertGreater(os.path.getsize(page), 0)

    def test_in_a_place_where_nothing_can_be_made(self):
        result = cli.run("replay", self.trace, COMMPOOL_RECORD="/proc/nowhere")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('nothing is recorded: no recording can be made in "/proc/nowhere"', result.stderr)

    def test_without_a_gpu_leaves_nothing(self):
        none = {"COMMPOOL_DRIVER": "cuda", "CUDA_VISIBLE_DEVICES": ""}
        without = cli.run("replay", self.trace, **none)
        result = cli.run("replay", self.trace, COMMPOOL_RECORD=self.recordings, **none)
        self.assertEqual((result.returncode, result.stderr), (4, without.stderr))
        self.assertEqual(glob.glob(os.path.join(self.recordings, "*")), [])


if __name__ == "__main__":
    unittest.main()
