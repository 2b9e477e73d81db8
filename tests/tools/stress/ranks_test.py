"""commpool_stress ranks: processes that fail are survived, and each planted fault of the library is found and named."""

import re

import cli

_SOUND = "pause,delay,refuse,flood"  # kinds of faults that ranks get over


class StressRanks(cli.StressTest):
    def stress(self, *arguments, status=0):
        return self.ends(status, "ranks", "--at-once", "8", *arguments)

    def find(self, plant, text, *arguments, schedules=30):
        result = self.stress("--plant", plant, "--schedules", str(schedules), *arguments, status=1)
        self.assertRegex(result.stdout, text)
        self.assertIn(f"planted: {plant}\n", result.stdout)

    def test_ranks_get_over_what_passes(self):
        result = self.stress("--schedules", "60", "--kinds", _SOUND, "--deadline-ms", "3000")
        self.assertTrue(result.stdout.endswith("60 schedules, 0 failures\n"), result.stdout)

    def test_the_coverage_is_a_table(self):
        result = self.stress("--schedules", "30", "--kinds", "pause", "--deadline-ms", "3000")
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"^where +kill +orphan +stop +pause +late +delay +refuse +crossed +flood$")
        self.assertEqual(len(lines), 15, result.stdout)
        self.assertRegex(lines[13], r"^at the port +- +- +- +- +- +- +- +- +\d+$")
        pauses = sum(int(line.split()[-6]) for line in lines[1:13])
        self.assertGreater(pauses, 0, result.stdout)

    def test_a_failure_can_be_run_again_by_its_number(self):
        first = self.stress("--plant", "leak", "--schedules", "10", "--kinds", _SOUND, status=1)
        number = re.search(r"again: commpool_stress ranks --schedule (\d+) --seed 1 ", first.stdout).group(1)
        again = self.stress("--plant", "leak", "--schedule", number, status=1)
        self.assertIn(f"schedule {number}: ", again.stdout)
        self.assertTrue(again.stdout.endswith("1 schedules, 1 failures\n"), again.stdout)

    def test_a_verdict_that_is_not_sent_is_found(self):
        self.find("dropped-verdict", r"rank \d fails in step .*though no rank has a fault by then", "--kinds", _SOUND)

    def test_a_wrong_name_is_found(self):
        self.find("wrong-name", r"rank (\d) names the healthy rank \1 in step \d+ \(", "--kinds", "kill")

    def test_a_wait_beyond_the_deadline_is_found(self):
        self.find("endless-wait", r"rank \d takes \d{4} ms for step \d+ \(", "--kinds", _SOUND)

    def test_unequal_states_are_found(self):
        self.find("unequal-state", r"rank \d and rank \d differ after step \d+", "--kinds", _SOUND, "--ranks", "3:5")

    def test_memory_that_is_left_is_found(self):
        self.find("leak", r"rank \d leaves \d+ things behind", "--kinds", _SOUND)

    def test_a_process_that_does_not_end_is_found(self):
        self.find("outlive", r"rank \d does not end", "--deadline-ms", "500", "--kinds", _SOUND, schedules=1)

    def test_refuses_what_it_cannot_do(self):
        self.each_ends(4, "ranks", "--ranks 1", "--ranks 9", "--ranks many", "--schedules 0", "--plant unknown",
                       "--kinds kill,unknown", "--deadline-ms 0")
        self.ends(3, "ranks", COMMPOOL_DRIVER="cuda")
