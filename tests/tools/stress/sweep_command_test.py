"""commpool_stress sweep: every constant of the engine's, and what the other traces choose for each."""

import json
import unittest

import cli

# Two blocks live at once; the second half finds all that it needs cached.
_STEADY = "".join(f"a {turn} 4194304 0\na {turn + 100} 1000 0\nf {turn}\nf {turn + 100}\n" for turn in range(20))


class Sweep(cli.TracesTest):
    def test_a_sweep_draws_each_constant_and_chooses_by_the_other_traces(self):
        command = ("sweep", "--streams", "2", self.write("steady.trace", _STEADY),
                   self.write("one.trace", "a 1 8388608 0\n"))
        swept = json.loads(cli.run_stress(*command, "--json").stdout)
        self.assertEqual(swept["scales"], [0.93, 1, 1.31])
        self.assertEqual({line["constant"] for line in swept["curve"]}, {
            "shipped", "move_share", "steady_move_share", "splinter_share", "wait_share", "host_wait_share",
            "small_page_share", "page_share"})
        for line in swept["curve"]:
            self.assertGreater(line["driver_us"], 0)
            self.assertLessEqual(line["least_utilisation"], line["mean_utilisation"])
            self.assertGreaterEqual(line["critical_path_longer"], 0)
            self.assertTrue({"host_waits", "device_waits", "steady_memory_calls", "cost"} <= set(line), line)
        self.assertEqual([trace["name"] for trace in swept["traces"]], ["steady", "one"])
        settings = {line["constant"] + (f" 1/{line['share']}" if line["share"] else "") for line in swept["curve"]}
        for trace in swept["traces"]:
            self.assertIn(trace["chosen_by_the_others"], settings)
            self.assertGreater(trace["with_it"]["cost"], 0)
        table = cli.run_stress(*command)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("wait_share 1/1000", table.stdout)
        for column in ("in use", "driver ms", "waits", "on dev.", "longer %", "cost"):
            self.assertIn(column, table.stdout)

    def test_a_place_without_traces_is_told(self):
        for place, words in (("/nowhere", "there is no /nowhere"), (self.folder, "there is no trace in ")):
            result = cli.run_stress("sweep", place)
            self.assertEqual(result.returncode, 4)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()
