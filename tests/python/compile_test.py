"""Nobody else can replace the binaries that the user's compiler makes."""

import itertools
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import emulated  # noqa: F401: before commpool
from commpool import _compile


class PrivateFolders(unittest.TestCase):
    def setUp(self):
        self.cache = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.folder = self.cache / "above" / "torch"

    def refused(self, folder, reason):
        self.assertRaisesRegex(_compile.CannotBuild, reason, _compile.make_private, folder)

    def test_are_made_for_the_user_alone_with_those_above(self):
        self.addCleanup(os.umask, os.umask(0))
        self.assertEqual(_compile.make_private(self.folder), self.folder)
        self.assertEqual(_compile.make_private(self.folder), self.folder, "again")
        modes = [folder.stat().st_mode & 0o777 for folder in (self.folder.parent, self.folder)]
        self.assertEqual(modes, [0o700, 0o700])

    def test_are_refused_where_others_may_write_to_them_or_above(self):
        _compile.make_private(self.folder)
        for folder, mode in itertools.product((self.folder, self.folder.parent), (0o770, 0o707)):
            with self.subTest(folder=folder, mode=oct(mode)):
                folder.chmod(mode)
                self.refused(self.folder, f"{folder} is another user's, or others may write to it; COMMPOOL_CACHE")
                folder.chmod(0o700)

    def test_may_lie_where_all_write_and_nobody_renames_what_is_anothers(self):
        self.cache.chmod(0o1777)
        self.assertEqual(_compile.make_private(self.folder), self.folder)
        self.folder.chmod(0o1777)
        self.refused(self.folder, "others may write to it")

    def test_are_told_without_links_that_others_may_change(self):
        elsewhere = self.cache / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        self.folder.parent.symlink_to(elsewhere)
        self.assertEqual(_compile.make_private(self.folder), elsewhere / "torch")

    def test_say_why_they_cannot_be_made(self):
        self.folder.parent.touch()
        self.refused(self.folder, "Not a directory")


class Trials(unittest.TestCase):
    # It would be one rank more in the program's report.
    def test_of_a_binary_are_not_recorded(self):
        dies_where_it_records = "import os; os.environ.get('COMMPOOL_RECORD') and os.kill(os.getpid(), 9)"
        with mock.patch.dict(os.environ, COMMPOOL_RECORD="folder"):
            _compile.try_out(pathlib.Path("binary"), dies_where_it_records, "COMMPOOL_TORCH_ROUTER")


class Binaries(unittest.TestCase):
    def test_are_compiled_once_and_the_wait_is_said_before(self):
        happened = []

        def compile_and_try(_what, line, _environment=None):
            happened.append("ran")
            if "-o" in line:
                pathlib.Path(line[line.index("-o") + 1]).touch()
            return subprocess.CompletedProcess(line, 0)

        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"COMMPOOL_CACHE": folder}), \
                mock.patch.object(_compile, "_run", compile_and_try), \
                mock.patch.object(_compile.logger, "warning", lambda text, *words: happened.append(text % words)):
            first, again = (_compile.built("a test", [], list, "", "UNUSED") for _ in range(2))
            self.assertEqual(first, again)
        self.assertRegex(happened[0], "compiles a test once, which takes some seconds; .* keeps it")
        self.assertEqual(happened[1:], ["ran", "ran"])
