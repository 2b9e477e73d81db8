"""commpool_stress host: where the host refuses a thread or a descriptor, the call fails and no more."""

import shutil
import tempfile
import unittest

import cli


class StressHost(unittest.TestCase):
    def stress(self, *arguments):
        return cli.run_stress("host", "--seed", "3", *arguments, limit_s=200)

    def test_programs_are_sound_where_nothing_is_refused(self):
        result = self.stress("--fault", "descriptor", "--nth", "1000000")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for program in ("fixed", "expandable", "symmetric"):
            self.assertRegex(result.stdout, rf"{program} +descriptor +0 +0 +1 +0 +0 +0 +0\n")
        self.assertTrue(result.stdout.endswith("3 runs, 0 failures\n"), result.stdout)

    def test_pools_survive_a_sample_of_refused_threads_and_descriptors(self):
        runs = 24
        result = self.stress("--sample", str(runs))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertTrue(result.stdout.endswith(f"{runs} runs, 0 failures\n"), result.stdout)
        struck = 0
        for line in result.stdout.splitlines()[-10:-1]:
            if line.split()[0] in ("fixed", "expandable", "symmetric"):
                struck += int(line.split()[2]) + int(line.split()[3])
        self.assertGreater(struck, runs // 2, result.stdout)

    def test_says_why_it_cannot_without_its_worker(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(cli.STRESS, folder)
            result = cli.run("host", program=alone)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stdout, "refused: .* host/host_worker, is not beside this one\n$")

    def test_refuses_what_it_cannot_do(self):
        for arguments in (["--program", "many"], ["--fault", "unknown"], ["--jobs", "0"], ["--watchdog-s", "0"]):
            self.assertEqual(self.stress(*arguments).returncode, 4, arguments)


if __name__ == "__main__":
    unittest.main()
