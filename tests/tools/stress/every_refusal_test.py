"""commpool_stress host for each allocation of a fixed pool: over a thousand processes, so CI alone runs it."""

import unittest

import cli


class EveryRefusal(unittest.TestCase):
    def test_fixed_pools_survive_each_refused_allocation(self):
        result = cli.run_stress("host", "--seed", "3", "--program", "fixed", "--fault", "allocation", limit_s=800)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\d{3,} runs, 0 failures\n$")


if __name__ == "__main__":
    unittest.main()
