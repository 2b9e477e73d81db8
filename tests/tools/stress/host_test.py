"""commpool_stress host: where the host refuses a thread or a descriptor, the call fails and no more."""

import shutil
import tempfile

import cli


class StressHost(cli.StressTest):
    def stress(self, *arguments, status=0):
        return self.ends(status, "host", "--seed", "3", *arguments, limit_s=200)

    def test_programs_are_sound_where_nothing_is_refused(self):
        result = self.stress("--fault", "descriptor", "--nth", "1000000")
        for program in ("fixed", "expandable", "symmetric"):
            self.assertRegex(result.stdout, rf"{program} +descriptor +0 +0 +1 +0 +0 +0 +0\n")
        self.assertTrue(result.stdout.endswith("3 runs, 0 failures\n"), result.stdout)

    def test_pools_survive_a_sample_of_refused_threads_and_descriptors(self):
        runs = 24
        result = self.stress("--sample", str(runs))
        self.assertTrue(result.stdout.endswith(f"{runs} runs, 0 failures\n"), result.stdout)
        rows = [line.split() for line in result.stdout.splitlines()[-10:-1]]
        struck = [int(row[2]) + int(row[3]) for row in rows if row[0] in ("fixed", "expandable", "symmetric")]
        self.assertGreater(sum(struck), runs // 2, result.stdout)

    def test_says_why_it_cannot_without_its_worker(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(cli.STRESS, folder)
            result = self.ends(3, "host", program=alone)
        self.assertRegex(result.stdout, "refused: .* host/host_worker, is not beside this one\n$")

    def test_refuses_what_it_cannot_do(self):
        self.each_ends(4, "host", "--program many", "--fault unknown", "--jobs 0", "--watchdog-s 0")
