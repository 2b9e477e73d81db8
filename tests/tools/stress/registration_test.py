"""commpool_stress registration: sound collective calls pass, and each planted fault is found and named."""

import re

import cli


class StressRegistration(cli.StressTest):
    def stress(self, *arguments, status=0):
        return self.ends(status, "registration", "--seed", "3", *arguments)

    def find(self, plant, *texts):
        result = self.stress("--schedules", "8", "--ranks", "3", "--plant", plant, status=1)
        rank = re.search(rf"planted: {plant} in schedule 4, rank (\d), step \d+\n", result.stdout).group(1)
        for text in texts:
            self.assertRegex(result.stdout, text.replace("RANK", rank))
        self.assertTrue(result.stdout.endswith("5 schedules, 1 failures\n"), result.stdout)

    def test_finds_nothing_in_sound_schedules(self):
        self.assertEqual(self.stress("--schedules", "210").stdout, "210 schedules, 0 failures\n")

    def test_a_schedule_can_be_run_again_by_its_number(self):
        self.assertEqual(self.stress("--schedules", "1", "--first", "4711").stdout, "1 schedules, 0 failures\n")

    def test_a_schedule_that_runs_by_itself_has_the_ranks_that_it_had(self):
        among, alone = (self.stress("--plant", "skip-deregister", *arguments, status=1).stdout
                        for arguments in (["--schedules", "8"], ["--schedules", "1", "--first", "4"]))
        found = "violation: schedule 4 of . ranks"
        self.assertEqual(re.findall(found, among)[:1], re.findall(found, alone)[:1], among + alone)
        self.assertRegex(alone, found)

    def test_a_communicator_that_ends_with_windows_is_found(self):
        self.find("skip-deregister", "communicator destroyed with live registrations: rank RANK: .* windows")

    def test_swapped_calls_are_a_disagreement_that_names_both(self):
        self.find("swap-calls", "ranks disagree on the collective call: .*rank RANK: trim", "rank .: reserve")

    def test_a_rank_that_drops_out_of_a_reserve_is_named_at_the_deadline(self):
        self.find("drop-rank", "making a segment .* missing: rank RANK: .*no answer before the deadline")

    def test_unequal_sizes_are_a_disagreement_that_names_both(self):
        self.find("unequal-sizes", r"ranks disagree on the bytes of reserve: rank 0: \d+ bytes, rank .: \d+ bytes")

    def test_a_hang_is_ended_and_told(self):
        result = self.stress("--schedules", "2", "--ranks", "2", "--plant", "drop-rank", "--short-deadline-ms", "90000",
                             "--watchdog-s", "3", status=4)
        self.assertRegex(result.stdout, "hang: schedule 1 of 2 ranks: rank 0 is in step .* in which a rank ends")

    def test_refuses_what_it_cannot_do(self):
        self.each_ends(4, "registration", "--ranks 1", "--ranks 9", "--ranks 4:2", "--ranks many", "--schedules 0",
                       "--plant unknown", "--deadline-ms 0", "--watchdog-s 0")
        self.ends(3, "registration", COMMPOOL_DRIVER="cuda")
