"""commpool_stress order: correct programs whose blocks are used on streams of several devices pass."""

import cli


class StressOrderOverDevices(cli.StressTest):
    def finds_nothing(self, *arguments):
        self.assertRegex(self.ends(0, "order", "--seed", "5", *arguments).stdout, r"^\d+ steps, 0 violations\n$")

    def test_finds_nothing_in_pinned_pools(self):
        self.finds_nothing("--seconds", "4", "--only", "pinned")

    def test_finds_nothing_where_blocks_come_without_a_stream(self):
        self.finds_nothing("--seconds", "4", "--only", "no-stream")

    def test_finds_nothing_in_pools_of_a_host_node(self):
        self.finds_nothing("--seconds", "4", "--only", "host")

    def test_finds_nothing_in_pools_with_peers(self):
        for kind in ("peer-asked", "peer-recorded", "peer"):
            self.finds_nothing("--seconds", "4", "--only", kind)

    def test_finds_nothing_in_pools_of_all_kinds(self):
        self.finds_nothing("--seconds", "10")

    def test_finds_nothing_in_pools_of_all_kinds_by_the_bytes_alone(self):
        self.finds_nothing("--seconds", "10", "--judge", "bytes")
