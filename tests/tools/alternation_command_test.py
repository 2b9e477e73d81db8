"""commpool replay --alternate: a pool and PyTorch's allocator, for which a library stands in, in turns."""

import json
import os
import pathlib

import cli

_MIB = 1 << 20
_STAND_IN = os.path.abspath("tests/tools/stand_in_peers.so")
_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_STEADY = "".join(f"a {turn} {4 * _MIB} 0\na {turn + 500} 1000 0\nf {turn}\nf {turn + 500}\n" for turn in range(100))


class Alternate(cli.TracesTest):
    def alternate(self, *arguments, status=0, **variables):
        return self.ends(status, "emulate", "--", cli.CLI, "replay", "--alternate", "--seconds", "0", *arguments,
                         **{**_EXPANDABLE, **variables})

    def skip_where_every_call_is_long(self, row):
        """A call of the stand-in makes emulated memory. Where that takes the host 20 us there is nothing to compare."""
        if row["rounds"] == 0 and row["other_long_us"] > 0:
            self.skipTest("the host takes 20 us or more for every call of the emulator")

    def test_tells_the_ratio_of_each_trace_with_its_interval(self):
        traces = [self.write("steady.trace", _STEADY), self.write("again.trace", _STEADY)]
        record = pathlib.Path(self.folder, "record.jsonl")
        result = self.alternate("--torch-library", _STAND_IN, "--record", str(record), *traces)
        self.assertIn("times mean nothing", result.stdout)
        rows = json.loads(record.read_text(encoding="utf-8"))["results"]["traces"]
        self.assertEqual([row["name"] for row in rows], ["steady", "again"])
        for row in rows:
            self.skip_where_every_call_is_long(row)
            self.assertEqual(row["events"], 400)
            self.assertGreaterEqual(row["rounds"], 6)
            low, high = row["interval"]
            self.assertTrue(0 < low <= row["ratio"] <= high, row)
            self.assertEqual(row["outcome"], "below" if high < 1 else "above" if low > 1 else "undecided")
            self.assertGreaterEqual(min(row["pool_long_us"], row["other_long_us"]), 0)
            self.assertIn(row["name"], result.stdout)

    def test_a_trace_is_played_on_four_streams(self):
        trace = self.write("steady.trace", _STEADY)
        results = json.loads(self.alternate("--torch-library", _STAND_IN, "--json", "--streams", "4", trace).stdout)
        [row] = results["traces"]
        self.assertEqual(results["streams"], 4)
        self.assertNotIn("failed", row)
        self.skip_where_every_call_is_long(row)
        self.assertGreaterEqual(row["rounds"], 6)

    def test_a_trace_that_does_not_fit_twice_is_told_and_the_others_are_not_lost(self):
        large = "".join(f"a {block} {20 * _MIB} 0\n" for block in range(3))
        traces = [self.write("large.trace", large), self.write("steady.trace", _STEADY)]
        result = self.alternate("--torch-library", _STAND_IN, "--json", *traces, COMMPOOL_EMULATOR="memory=128MiB")
        large, steady = json.loads(result.stdout)["traces"]
        self.assertIn("large twice needs", large["failed"])
        self.skip_where_every_call_is_long(steady)
        self.assertGreaterEqual(steady["rounds"], 6)

    def test_what_it_is_not_for_is_refused_with_the_reason(self):
        trace = self.write("one.trace", "a 1 1 0\n")
        library = ["--torch-library", _STAND_IN]
        for arguments in ([], [*library, "--mode", "symmetric"], [*library, "--peers", "torch-native"]):
            result = self.alternate(*arguments, trace, status=3)
            self.assertIn("refused: --alternate takes turns", result.stdout)
        result = self.alternate(*library, trace, status=3, PYTORCH_CUDA_ALLOC_CONF="")
        self.assertIn("expandable_segments:True", result.stdout)
