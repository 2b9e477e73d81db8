"""commpool_stress engine: a sound engine passes, and each planted fault is found and named."""

import unittest

import cli


class Stress(unittest.TestCase):
    def stress(self, *arguments):
        return cli.run_stress("engine", "--seed", "3", *arguments)

    def test_finds_nothing_in_a_sound_engine(self):
        for threads, lives in (("1", "outlive"), ("2", "outlive"), ("1", "may-die"), ("2", "may-die")):
            result = self.stress("--operations", "10000", "--threads", threads, "--lives", lives)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertEqual(result.stdout, "10000 operations, 0 violations\n")

    def test_finds_and_names_planted_faults(self):
        for fault, text in (("skip-wait", "race: nothing orders these two"), ("double-free", "freed already"),
                            ("use-after-free", "use of a freed block"), ("leak", "still holds 1 blocks"),
                            ("unannounced-capture", "unannounced capture: pool fixed"),
                            ("dead-stream", "dead stream")):
            result = self.stress("--operations", "20000", "--plant", fault)
            self.assertEqual(result.returncode, 1, fault + result.stdout)
            self.assertIn(text, result.stdout, fault)
            self.assertIn(f"planted: {fault}\n", result.stdout)

    def test_finds_a_skipped_wait_however_quick_the_device_is(self):
        # Two steps are too few for two streams to meet by chance.
        result = self.stress("--operations", "2", "--plant", "skip-wait")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("race: nothing orders these two", result.stdout)

    def test_refuses_what_it_does_not_know(self):
        for arguments in (["--plant", "unknown"], ["--threads", "0"], ["--operations", "-1"],
                          ["--plant", "skip-wait", "--lives", "may-die"]):
            self.assertEqual(self.stress(*arguments).returncode, 4, arguments)


if __name__ == "__main__":
    unittest.main()
