"""A source that passed needs no second reading, until something changes that decided."""

import os
import sys
import time

import planted
import verdicts

_COMMAND = [sys.executable, "-O", "a.cc"]


class Verdicts(planted.PlantedTest):

    def setUp(self):
        self.folder = self.planted({})
        self.checkout("here")
        self.of("here").note(_COMMAND, ["a.cc", "a.h"])

    def checkout(self, name):
        for path in (f"{name}/a.cc", f"{name}/a.h"):
            planted.write(self.folder, {path: "1"})
            os.utime(self.folder / path, (0, 0))

    def of(self, checkout):
        """As another run sees them."""
        return verdicts.Verdicts(self.folder / "kept", self.folder / checkout)

    def test_hold_for_the_same_files_in_every_checkout(self):
        self.checkout("there")
        self.assertTrue(self.of("here").passed(_COMMAND))
        self.assertTrue(self.of("there").passed(_COMMAND))

    def test_end_with_a_change_of_any_file_that_was_read(self):
        for name in ["a.cc", "a.h"]:
            self.checkout("here")
            (self.folder / "here" / name).write_text("2")
            self.assertFalse(self.of("here").passed(_COMMAND), name)
        self.checkout("here")
        self.assertTrue(self.of("here").passed(_COMMAND))

    def test_are_of_each_checkout_s_own_files_where_the_compiler_names_whole_paths(self):
        self.checkout("there")
        command = [sys.executable, "whole.cc"]
        self.of("here").note(command, ["a.cc", str(self.folder / "here/a.h")])
        self.assertTrue(self.of("there").passed(command))
        (self.folder / "there/a.h").write_text("2")
        self.assertFalse(self.of("there").passed(command))

    def test_need_a_whole_file(self):
        kept, = (self.folder / "kept").iterdir()
        for text in ["", "\n", "cut"]:
            kept.write_text(text)
            self.assertFalse(self.of("here").passed(_COMMAND), text)

    def test_that_cannot_be_kept_harm_nobody(self):
        (self.folder / "file").write_text("")
        for run, names in [(verdicts.Verdicts(self.folder / "file", self.folder / "here"), ["a.cc"]),
                           (self.of("here"), ["gone.h"])]:
            run.note(["/bin/true", "b.cc"], names)
            self.assertFalse(run.passed(["/bin/true", "b.cc"]))

    def test_end_with_a_file_that_is_gone(self):
        (self.folder / "here/a.h").unlink()
        self.assertFalse(self.of("here").passed(_COMMAND))

    def test_are_of_one_command_and_one_compiler(self):
        compiler = self.folder / "compiler"
        for text in ["1", "22"]:
            compiler.write_text(text)
            self.assertFalse(self.of("here").passed([str(compiler), "a.cc"]))
            self.of("here").note([str(compiler), "a.cc"], ["a.cc"])
            self.assertTrue(self.of("here").passed([str(compiler), "a.cc"]))
        self.assertFalse(self.of("here").passed([sys.executable, "a.cc"]))

    def test_are_not_kept_where_a_file_changed_meanwhile(self):
        run = self.of("here")
        (self.folder / "here/b.h").write_text("1")
        os.utime(self.folder / "here/b.h", (time.time() + 60,) * 2)
        run.note([sys.executable, "b.cc"], ["a.cc", "b.h"])
        self.assertFalse(self.of("here").passed([sys.executable, "b.cc"]))
