"""commpool replay: figures of small traces whose answers are known, and what it refuses."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cli

_MIB = 1 << 20
_KEYS = {"name", "mode", "peak_requested_bytes", "peak_reserved_bytes", "utilisation", "smallest_device_bytes",
         "ns_per_event", "driver_us", "waits", "moved_bytes", "driver_calls"}
_STAND_IN = os.path.abspath("tests/tools/stand_in_peers.so")
_STAND_INS = ["--torch-library", _STAND_IN, "--rmm-library", _STAND_IN]
# Two blocks live at once; the second half finds all that it needs cached.
_STEADY = "# a comment\n" + "".join(
    f"a {turn} {4 * _MIB} 0\na {turn + 100} 1000 0\nf {turn}\nf {turn + 100}\n" for turn in range(20))


class Replay(cli.TracesTest):
    def replay(self, *arguments, **variables):
        result = self.ends(0, "replay", "--json", *arguments, **variables)
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)["traces"]

    def test_tells_what_the_issue_asks_for(self):
        for mode in ("fixed", "expandable", "symmetric"):
            [trace] = self.replay("--mode", mode, self.write("steady.trace.xz", _STEADY))
            self.assertEqual(_KEYS - set(trace), set(), mode)
            self.assertEqual((trace["name"], trace["mode"]), ("steady", mode))
            self.assertEqual(trace["peak_requested_bytes"], 4 * _MIB + 1000)
            self.assertGreaterEqual(trace["peak_reserved_bytes"], 6 * _MIB)
            self.assertAlmostEqual(trace["utilisation"], trace["peak_requested_bytes"] / trace["peak_reserved_bytes"])

    def test_reserved_memory_is_what_the_driver_counted(self):
        [trace] = self.replay("--mode", "fixed", "--backing", "cuda", self.write("one.trace", f"a 7 {32 * _MIB} 0\n"))
        self.assertEqual(trace["peak_reserved_bytes"], 32 * _MIB)
        self.assertEqual(trace["driver_calls"].get("cuMemAlloc"), 1)

    def test_a_steady_trace_calls_no_driver_in_its_second_half(self):
        for mode in ("fixed", "expandable", "symmetric"):
            [trace] = self.replay("--mode", mode, self.write("steady.trace", _STEADY))
            self.assertEqual(trace["second_half"], {"driver_calls": {}, "waits": 0}, mode)
            self.assertEqual(trace["steady_driver_calls"], 0, mode)
            self.assertTrue(trace["driver_calls"], mode)

    def test_blocks_shared_by_streams_are_neither_lost_nor_raced_for(self):
        text = "".join(f"a {block} {8192 + block} 0\n" + (f"f {block - 30}\n" if block >= 30 else "")
                       for block in range(600))
        [trace] = self.replay("--streams", "4", self.write("spread.trace", text))
        self.assertEqual(trace["events"], 600 + 570)

    def test_streams_that_may_die_are_asked_who_they_are(self):
        for mode in ("fixed", "expandable"):
            trace = self.write("spread.trace", _STEADY)
            calls = {lives: self.replay("--mode", mode, "--streams", "4", "--lives", lives, trace)[0]["driver_calls"]
                     for lives in ("outlive", "may-die")}
            self.assertLessEqual(calls["outlive"].get("cuStreamGetId", 0), 4, "each stream's, when it is promised")
            self.assertGreater(calls["may-die"]["cuStreamGetId"], 4)

    def test_all_sizes_can_be_scaled(self):
        [trace] = self.replay("--scale", "1.5", self.write("steady.trace", _STEADY))
        self.assertEqual(trace["peak_requested_bytes"], 6 * _MIB + 1500)

    def test_a_symmetric_pool_shows_what_one_reservation_has_to_have(self):
        # Ten blocks, of which every other one is freed: the holes have 8 MiB, and 12 are asked for.
        text = "".join(f"a {block} {8 * _MIB} 0\n" for block in range(10))
        text += "".join(f"f {block}\n" for block in range(1, 10, 2)) + f"a 10 {12 * _MIB} 0\n"
        path = self.write("holes.trace", text)
        [trace] = self.replay("--mode", "symmetric", "--reserve", "1", path)
        self.assertEqual(trace["peak_reserved_bytes"], trace["reservation_bytes"])
        self.assertEqual(trace["reserves"], 0)
        self.assertEqual(trace["reservation_bytes"], 84 * _MIB, "the last hole lies beside what is more than the peak")
        again = trace["reserve_again"]
        self.assertEqual((again["peak_reserved_bytes"], again["reserves"], again["utilisation"]),
                         (92 * _MIB, 1, 80 / 92))
        table = cli.run("replay", "--mode", "symmetric", path).stdout
        first = int(80 * _MIB * 1.04)
        self.assertIn(f"reserve({84 * _MIB}) runs it at once; with reserve({first}) it reserves 0 times more", table)
        [other] = self.replay(path)
        self.assertNotIn("reserve_again", other)

    def test_the_smallest_device_is_at_least_what_is_requested(self):
        [trace] = self.replay("--smallest", self.write("steady.trace", _STEADY))
        self.assertGreaterEqual(trace["smallest_device_bytes"], 6 * _MIB)
        self.assertEqual(trace["smallest_device_bytes"] % (2 * _MIB), 0)
        self.assertAlmostEqual(trace["smallest_device_ratio"], trace["smallest_device_bytes"] / (6 * _MIB))

    def test_a_folder_means_all_its_traces_with_the_measures_beside_them(self):
        self.write("b.trace", "a 0 512 0\nf 0\n")
        self.write("a.trace.xz", "a 0 512 0\n")
        self.write("a.native.json", '{"peak_requested": 1, "peak_reserved": 2}')
        self.write("a.expandable.json", '{"peak_requested": 3, "peak_reserved": 4}')
        first, second = self.replay(self.folder)
        self.assertEqual([first["name"], second["name"]], ["a", "b"])
        self.assertEqual(first["pytorch_native_utilisation"], 0.5)
        self.assertEqual(first["pytorch_expandable_utilisation"], 0.75)
        self.assertNotIn("pytorch_native_utilisation", second)

    def test_the_table_has_a_line_for_each_trace(self):
        result = self.ends(0, "replay", self.write("steady.trace", _STEADY), self.write("one.trace", "a 1 1 0\n"))
        lines = [line.split()[:2] for line in result.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(lines[1:], [["steady", "expandable"], ["one", "expandable"]])

    def test_a_device_that_is_too_small_is_an_error_with_the_event(self):
        self.refuses(4, "event 2 of 2 in large", "replay", self.write("large.trace", f"a 0 512 0\na 1 {64 * _MIB} 0\n"),
                     COMMPOOL_EMULATOR="memory=32MiB")

    def test_impossible_combinations_are_refused_with_the_reason(self):
        trace = self.write("one.trace", "a 1 1 0\n")
        for arguments, reason in (("--mode expandable --backing cuda", "vmm"),
                                  ("--mode symmetric --backing cuda", "cudaMalloc"),
                                  ("--torch-library none.so", "needs a GPU")):
            said = self.ends(3, "replay", *arguments.split(), trace).stdout
            self.assertIn("refused: ", said)
            self.assertIn(reason, said)

    def test_other_allocators_stand_beside_the_pool(self):
        traces = [self.write("steady.trace", _STEADY), self.write("one.trace", f"a 1 {4 * _MIB} 0\n")]
        for streams in ("1", "2"):
            report = self.report("replay", "--peers", "cuda-async", "--streams", streams, *traces)
            rows = report["peers"]["cuda-async"]
            self.assertEqual([row["name"] for row in rows], [row["name"] for row in report["traces"]])
            for row in rows:
                self.assertEqual(row["mode"], "cuda-async")
                self.assertTrue(0 < row["utilisation"] <= 1, row)
                self.assertGreater(row["driver_us"], 0)
        # An allocation and a free of each block, of which the steady trace has 40.
        self.assertGreaterEqual(rows[0]["driver_calls"]["all"], 80)

    def test_peers_replay_the_same_sizes_as_the_pool(self):
        trace = self.write("large.trace", f"a 1 {64 * _MIB} 0\n")
        report = self.report("replay", "--scale", "3.7", "--peers", "cuda-async", trace)
        [row] = report["peers"]["cuda-async"]
        self.assertEqual(report["scale"], 3.7)
        self.assertEqual(row["peak_requested_bytes"], report["traces"][0]["peak_requested_bytes"])

    def test_each_peer_has_a_process_with_its_own_setting_and_library(self):
        trace = self.write("blocks.trace", f"a 1 {8 * _MIB} 0\na 2 {8 * _MIB} 0\nf 1\nf 2\n")
        names = "torch-native,torch-expandable,rmm-pool,rmm-arena"
        peers = self.report("replay", "--peers", names, *_STAND_INS, trace)["peers"]
        self.assertEqual({name: rows[0].get("utilisation") for name, rows in peers.items()},
                         {"torch-native": 0.5, "torch-expandable": 1.0, "rmm-pool": 1.0,
                          # The least of the sizes that are tried which holds blocks of 5/4: 1.22, in steps of 2 MiB.
                          "rmm-arena": 0.8})
        for rows in peers.values():
            self.assertEqual(rows[0]["driver_calls"], {"all": 4}, rows)

    def test_each_peer_takes_a_trace_of_several_streams(self):
        trace = self.write("spread.trace", "".join(f"a {block} {_MIB} 0\n" for block in range(160)) +
                           "".join(f"f {block}\n" for block in range(160)))
        peers = "torch-native,torch-expandable,rmm-pool,rmm-arena,cuda-async"
        found = self.report("replay", "--streams", "2", *_STAND_INS, "--peers", peers, trace)["peers"]
        self.assertEqual(sorted(found), sorted(peers.split(",")))
        for name, [row] in found.items():
            self.assertEqual(row["events"], 320, name)
            for column in ("utilisation", "wall_ns_per_event", "short_ns_per_event", "long_us", "driver_us"):
                self.assertIn(column, row, name)
        # Two streams share a block in eight: who knows one stream a block waits for the other before the free.
        calls = {name: row["driver_calls"]["all"] for name, [row] in found.items()}
        self.assertGreater(calls["rmm-pool"], calls["torch-expandable"])

    def test_a_peer_that_hangs_is_ended(self):
        trace = self.write("many.trace", _STEADY)
        report = self.report("replay", "--peers", "torch-native", *_STAND_INS, "--peer-limit", "1", trace,
                             STAND_IN_HANGS="1")
        self.assertIn("ended after 1 s", report["peers"]["torch-native"]["failed"])

    def test_a_peer_that_fails_is_told_and_the_others_are_not_lost(self):
        trace = self.write("large.trace", f"a 0 512 0\na 1 {6 * _MIB} 0\n")
        nothing = os.path.join(self.folder, "nothing.so")
        peers = self.report("replay", "--peers", "rmm-pool,cuda-async", "--rmm-library", nothing, trace)["peers"]
        self.assertIn("nothing.so", peers["rmm-pool"][0]["failed"])
        self.assertGreater(peers["cuda-async"][0]["utilisation"], 0)
        table = cli.run("replay", "--peers", "rmm-pool,cuda-async", "--rmm-library", nothing, trace).stdout
        for line in ("large              commpool", "large              cuda-async", "large              rmm-pool"):
            self.assertIn(line, table)

    def test_peers_without_what_they_need_are_refused(self):
        trace = self.write("one.trace", "a 1 1 0\n")
        self.each_ends(3, f"replay {trace}", "--peers rmm-pool", "--peers torch-native", "--as rmm-arena")

    def test_bad_arguments_are_errors(self):
        trace = self.write("one.trace", "a 1 1 0\n")
        self.each_ends(4, "replay", "", "nowhere.trace", tempfile.mkdtemp(dir=self.folder))
        self.each_ends(4, f"replay {trace}", "--mode loose", "--streams 0", "--peers jemalloc", "--backing gold")

    def test_a_trace_that_cannot_be_read_is_told_with_the_line(self):
        for text, reason in (("a 0 512 0\nf 1\n", "line 2 of bad frees a block that does not live"),
                             ("b 0 512 0\n", "line 1 of bad"), ("", "holds no event")):
            self.refuses(4, reason, "replay", self.write("bad.trace", text))
        torn = self.write("torn.trace.xz", _STEADY)
        os.truncate(torn, 20)
        self.refuses(4, "no whole .xz file", "replay", torn)


class Recorded(cli.CommandTest):
    def test_what_is_synthesised_can_be_replayed(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "tools/traces/synthesise.py", "--out", folder, "--steps", "1", "unet",
                            "pipeline"], check=True, capture_output=True)
            pipeline, unet = self.report("replay", folder)["traces"]
        self.assertTrue(pipeline["name"].startswith("pipeline") and unet["name"].startswith("unet"))
        self.assertGreater(min(pipeline["utilisation"], unet["utilisation"]), 0.9)

    def test_the_traces_of_the_repository_are_whole(self):
        folder = "tests/data/traces"
        for name in ("resnet50", "gnn"):
            [trace] = self.report("replay", "--mode", "fixed", f"{folder}/{name}.trace.xz")["traces"]
            recorded = json.loads(pathlib.Path(folder, f"{name}.native.json").read_text(encoding="utf-8"))
            self.assertEqual(trace["events"], recorded["events"])
            self.assertEqual(trace["peak_requested_bytes"], recorded["peak_requested"])
