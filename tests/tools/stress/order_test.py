"""commpool_stress order: correct programs over fixed, expandable and symmetric pools pass; planted faults are found."""

import cli


class StressOrder(cli.StressTest):
    def stress(self, *arguments, seed="3", status=0, **variables):
        return self.ends(status, "order", "--seed", seed, *arguments, **variables)

    def finds_nothing(self, *arguments):
        self.assertRegex(self.stress("--seconds", "4", *arguments).stdout, r"^\d+ steps, 0 violations\n$")

    def finds(self, plant, text, *arguments, **options):
        result = self.stress("--seconds", "60", "--plant", plant, *arguments, status=1, **options)
        self.assertTrue(result.stdout.startswith(f"planted: {plant}\nseed "), result.stdout)
        self.assertRegex(result.stdout, text)

    def test_finds_nothing_where_no_stream_of_another_device_uses_a_block(self):
        for kind in ("fixed", "expandable", "symmetric"):
            self.finds_nothing("--only", kind)

    def test_finds_nothing_where_several_threads_share_the_pools(self):
        self.finds_nothing("--only", "fixed,expandable", "--threads", "4")

    def test_finds_a_skipped_wait_of_the_library(self):
        for kind in ("expandable", "symmetric"):
            self.finds("skip-wait", "race: nothing orders these two", "--only", kind)

    def test_finds_a_stream_that_is_not_recorded_and_tells_what_happened_to_the_memory(self):
        self.finds("skip-record", r"race: nothing orders these two(.|\n)* step \d+: 0x\w+, \d+ bytes: freed",
                   "--only", "fixed")

    def test_finds_a_leak(self):
        self.finds("leak", r"leak: fixed0 still holds 1 blocks", "--only", "fixed")

    def test_finds_a_skipped_wait_by_the_bytes_alone_and_tells_what_happened_to_the_memory(self):
        told = r"bytes: a live block of symmetric\d+, read on .* stream (.|\n)* step \d+: 0x\w+, \d+ bytes: freed"
        self.finds("skip-wait", told, "--judge", "bytes", "--only", "symmetric")

    def test_finds_a_stream_that_is_not_recorded_by_the_bytes_alone(self):
        # Or its work is so late that the memory is gone.
        told = "violation: step .*(bytes: a live block of expandable|CUDA_ERROR_ILLEGAL_ADDRESS)"
        for seed in ("100", "200", "300"):
            self.finds("skip-record", told, "--judge", "bytes", "--only", "expandable", seed=seed)

    def test_skips_no_waits_of_a_gpu(self):
        result = self.stress("--plant", "skip-wait", status=3, COMMPOOL_DRIVER="cuda")
        self.assertIn("--plant skip-wait: the emulator alone skips waits; leave COMMPOOL_DRIVER=cuda", result.stdout)

    def test_names_the_pools_that_a_machine_cannot_have(self):
        result = self.stress("--steps", "100", "--only", "fixed,peer", COMMPOOL_EMULATOR="links=none")
        self.assertRegex(result.stdout, r"^left out: peer pools: .+\n\d+ steps, 0 violations\n$")

    def test_refuses_what_it_does_not_know(self):
        self.each_ends(4, "order", "--plant unknown", "--threads 0", "--steps -1", "--only unknown", "--judge unknown",
                       "--plant skip-wait --threads 2")
