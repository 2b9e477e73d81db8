"""COMMPOOL_CONF changes the defaults of pools made in Python; what the program gives wins."""

import os
import subprocess
import sys
import unittest

import emulated  # noqa: F401: before commpool

_HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["COMMPOOL_CONF"] = "limit:20MiB,worded.mode:expandable,worded.deadline:5s"

import commpool  # noqa: E402


class Configurations(unittest.TestCase):
    def settings(self, pool):
        return {setting.key: (setting.value, setting.source) for setting in pool.config()}

    def test_are_shown_with_where_they_came_from(self):
        settings = {setting.key: setting for setting in commpool.config() if setting.pool == ""}
        self.assertEqual(settings["limit"], ("", "limit", "20MiB", "COMMPOOL_CONF limit:20MiB"))
        self.assertEqual(settings["mode"].source, "default")
        self.assertRegex(repr(commpool.config()), r"(?m)^limit +20MiB +COMMPOOL_CONF limit:20MiB$")
        self.assertIn(">20MiB</td>", commpool.config()._repr_html_())

    def test_set_what_the_program_does_not_give(self):
        pool = commpool.Pool("worded")
        self.assertEqual((pool.mode, pool.backing), ("expandable", "vmm"))
        self.assertEqual(self.settings(pool)["deadline"][0], "5s")
        self.assertRaisesRegex(commpool.OutOfMemory, "20 MiB", pool.reserve, "24MiB")

    def test_give_way_to_the_program_also_where_it_gives_the_default(self):
        pool = commpool.Pool("worded", mode="fixed", limit=2**64 - 1, deadline_ms=60000)
        self.assertEqual(pool.mode, "fixed")
        settings = self.settings(pool)
        for key in ("mode", "limit", "deadline"):
            self.assertEqual(settings[key][1], "code", key)
        pool.reserve("24MiB")

    def test_know_what_users_and_the_library_make(self):
        self.assertEqual(commpool.Pool(backing=commpool.UserBacking(lambda *_: None, lambda *_: None)).backing, "user")
        self.assertEqual(commpool.Pool.default(1).mode, "fixed")


class Slips(unittest.TestCase):
    def run_with(self, **environment):
        program = "import emulated, commpool; commpool.Pool()"
        return subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment, "PYTHONPATH": _HERE},
                              capture_output=True, text=True, check=False).stderr

    def test_of_the_sign_are_told_with_the_right_words(self):
        self.assertRegex(self.run_with(COMMPOOL_CONF="limit=2GiB"),
                         r"COMMPOOL_CONF says limit=2GiB: write limit:2GiB, with a colon\n$")

    def test_of_a_variable_s_name_are_a_warning_with_the_nearest(self):
        self.assertIn("nothing reads the variable COMMPOOL_RECORDD; the nearest is COMMPOOL_RECORD",
                      self.run_with(COMMPOOL_RECORDD="x"))
