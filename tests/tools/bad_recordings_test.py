"""Recordings that `commpool report` cannot read whole, and programs that cannot record: what both say, and go on."""

import glob
import os

import cli
import small_disk

_PAGE = 64 << 10
_VERSION = 4  # where a file has the version of its format


class BadRecordings(cli.RecordingsTest):
    def setUp(self):
        super().setUp()
        self.page = os.path.join(self.folder, "report.html")

    def change(self, path, offset, byte):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(bytes([byte]))

    def show(self, *options, status=0):
        return self.ends(status, "report", self.recordings, "--output", self.page, *options)

    def test_a_recording_that_was_cut_is_shown_up_to_there(self):
        for path in self.make():
            os.truncate(path, os.path.getsize(path) // 2 // _PAGE * _PAGE + 1000)
        self.assertIn("damaged", self.show().stdout)
        self.assertRegex(self.show("--as", "trace").stdout, r"\d+,?\d* allocations")

    def test_a_recording_that_was_cut_in_its_first_page_is_named(self):
        first, _ = self.make()
        for left, sentences in ((1000, ["rank 0: the recording has no entries"]),
                                (20, [f'not shown: "{first}"', "rank 0 left no recording"])):
            os.truncate(first, left)
            said = self.show().stdout
            for sentence in sentences:
                self.assertIn(sentence, said)

    def test_a_recording_of_a_later_version_is_named_and_the_others_are_shown(self):
        first, _ = self.make()
        self.change(first, _VERSION, 9)
        self.assertRegex(self.show().stdout, rf'not shown: "{first}".* version 9')

    def test_a_folder_of_a_later_version_alone_is_an_error(self):
        for path in self.make():
            self.change(path, _VERSION, 9)
        self.assertIn("version 9", self.show(status=4).stderr)
        self.assertFalse(os.path.exists(self.page))


class CannotRecord(cli.RecordingsTest):
    """Programs that are asked to record and cannot: they do what they do without."""

    def setUp(self):
        super().setUp()
        lines = [f"a {block} {2 << 20} 0\nf {block}\n" for block in range(20000)]
        self.trace = self.write("some.trace", "".join(lines))

    def run_on_a_full_disk(self, script):
        """In a name space of mounts, where the folder of the recordings has room for two pages."""
        os.mkdir(self.recordings)
        script = f'mount -t tmpfs -o size=128k none "{self.recordings}" && {script}'
        unshare, *options = small_disk.may_mount(self)
        return self.ends(0, *options, "sh", "-c", script, program=unshare)

    def test_with_a_full_disk(self):
        page = os.path.join(self.folder, "report.html")
        result = self.run_on_a_full_disk(
            f'COMMPOOL_RECORD="{self.recordings}" "{cli.CLI}" replay "{self.trace}" --json && '
            f'"{cli.CLI}" report "{self.recordings}" --output "{page}"')
        self.assertIn('"events": 40000', result.stdout)
        self.assertEqual(result.stderr.count("the recording is not whole"), 1, result.stderr)
        self.assertIn("No space left on device", result.stderr)
        self.assertGreater(os.path.getsize(page), 0)

    def test_in_a_place_where_nothing_can_be_made(self):
        result = self.ends(0, "replay", self.trace, COMMPOOL_RECORD="/proc/nowhere")
        self.assertIn('nothing is recorded: no recording can be made in "/proc/nowhere"', result.stderr)

    def test_without_a_gpu_leaves_nothing(self):
        none = {"COMMPOOL_DRIVER": "cuda", "CUDA_VISIBLE_DEVICES": ""}
        without = self.ends(4, "replay", self.trace, **none)
        result = self.ends(4, "replay", self.trace, COMMPOOL_RECORD=self.recordings, **none)
        self.assertEqual(result.stderr, without.stderr)
        self.assertEqual(glob.glob(os.path.join(self.recordings, "*")), [])

    def test_with_a_number_that_is_no_rank_is_shown_as_without_one(self):
        self.ends(0, "replay", self.trace, COMMPOOL_RECORD=self.recordings, RANK="-3")
        self.ends(0, "report", self.recordings, "--output", os.path.join(self.folder, "report.html"))
