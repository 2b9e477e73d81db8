"""commpool_stress host for each allocation of a program: thousands of processes, so CI alone runs it."""

import unittest

import cli


class EveryRefusal(unittest.TestCase):
    def survive(self, program):
        result = cli.run_stress("host", "--seed", "3", "--program", program, "--fault", "allocation", limit_s=800)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\d{3,} runs, 0 failures\n$")

    def test_fixed_pools_survive_each_refused_allocation(self):
        self.survive("fixed")

    # Where one rank gives up between two rounds, the others wait for it until their deadline.
    def test_symmetric_pools_survive_each_refused_allocation(self):
        self.survive("symmetric")


if __name__ == "__main__":
    unittest.main()
