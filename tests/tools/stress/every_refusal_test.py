"""commpool_stress host for the allocations of a program: thousands of processes, so CI alone runs it."""

import unittest

import cli


class EveryRefusal(unittest.TestCase):
    def survive(self, program, *options):
        result = cli.run_stress("host", "--seed", "3", "--program", program, "--fault", "allocation", *options,
                                limit_s=800)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\d{3,} runs, 0 failures\n$")

    def test_fixed_pools_survive_each_refused_allocation(self):
        self.survive("fixed")

    # Where one rank gives up between two rounds, the others wait for it until their deadline. All of its 5,800 take
    # some minutes: leave the option out.
    def test_symmetric_pools_survive_one_in_four(self):
        self.survive("symmetric", "--sample", "1500")


if __name__ == "__main__":
    unittest.main()
