"""commpool stress host: where the host refuses an allocation, a thread or a descriptor, the call fails and no more."""

import unittest

import cli


class StressHost(unittest.TestCase):
    def stress(self, *arguments):
        return cli.run("stress", "host", "--seed", "3", *arguments)

    def test_programs_are_sound_where_nothing_is_refused(self):
        result = self.stress("--fault", "allocation", "--nth", "1000000")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for program in ("fixed", "expandable", "symmetric"):
            self.assertRegex(result.stdout, rf"{program} +allocation +0 +0 +1 +0 +0 +0 +0\n")
        self.assertTrue(result.stdout.endswith("3 runs, 0 failures\n"), result.stdout)

    def test_refuses_what_it_cannot_do(self):
        for arguments in (["--program", "many"], ["--fault", "gremlin"], ["--jobs", "0"], ["--watchdog-s", "0"]):
            self.assertEqual(self.stress(*arguments).returncode, 4, arguments)


if __name__ == "__main__":
    unittest.main()
