"""`commpool report`: the page, and what one rank exports, from recordings of a program that was never run."""

import json
import os
import pathlib
import pickle
import re

import cli
from snapshot_history import SnapshotHistory
from trace_text import read_trace

_EVENTS = 20000  # as long as nobody says otherwise


class Builtins(pickle.Unpickler):
    """Reads pickles of Python's own types alone."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


class Report(cli.RecordingsTest):
    def show(self, *options, output="report.html"):
        path = pathlib.Path(self.folder, output)
        return path, self.ends(0, "report", self.recordings, "--output", str(path), *options).stdout

    def model(self):
        page = self.show()[0].read_text(encoding="utf-8")
        found = re.search(r'<script type="application/json" id="model">(.*?)</script>', page, re.DOTALL)
        self.assertNotIn("<", found[1])
        return json.loads(found[1])

    def snapshot(self):
        with open(self.show("--as", "snapshot", output="snapshot.pickle")[0], "rb") as file:
            return Builtins(file).load()

    def test_makes_a_page_with_the_model_of_all_ranks(self):
        self.make()
        model = self.model()
        self.assertEqual(model["version"], 1)
        self.assertEqual([rank["rank"] for rank in model["ranks"]], [0, 1])
        self.assertIsNone(model["difference"])
        for rank in model["ranks"]:
            self.assertEqual([pool["name"] for pool in rank["pools"]], ["activations", "gradients"])
            for pool in rank["pools"]:
                for table in ("bytes", "segments", "asleep", "registrations", "blocks"):
                    self.assertEqual(len({len(column) for column in pool[table].values()}), 1, table)
                self.assertEqual(pool["bytes"]["time"], sorted(pool["bytes"]["time"]))
            blocks = rank["pools"][0]["blocks"]
            self.assertGreater(len(blocks["bytes"]), _EVENTS / 2 - 1)
            self.assertLessEqual(max(max(blocks["to"]), max(blocks["from"])), model["end"])
            held = sum(holder["bytes"] for holder in rank["peak"]["holders"])
            self.assertEqual(held, rank["peak"]["bytes"])
            waited = [who for kind, who in zip(rank["events"]["kind"], rank["events"]["waited_for"])
                      if kind == "agreement"]
            self.assertEqual(waited, [1] * (_EVENTS // 5000))

    def test_takes_clocks_to_one(self):
        self.make()
        begins = [rank["events"]["to"][1] for rank in self.model()["ranks"]]
        self.assertLess(abs(begins[0] - begins[1]), 1000)  # their own differ by a second

    def test_names_the_first_call_that_differs(self):
        self.make("--differ", events=100000)
        difference = self.model()["difference"]
        self.assertEqual((difference["pool"], difference["call"]), ("gradients", 17))
        self.assertEqual([rank["text"] for rank in difference["ranks"]],
                         ["allocate 65,536 bytes", "allocate 131,072 bytes"])

    def test_says_which_rank_left_nothing_and_which_file_is_none(self):
        os.remove(self.make(ranks=3)[1])
        pathlib.Path(self.recordings, "other.recording").write_text("nothing of ours", encoding="utf-8")
        _, said = self.show()
        self.assertIn("3 ranks: rank 1 left no recording", said)
        self.assertIn("is no recording of commpool", said)

    def test_names_what_is_no_file_and_goes_on(self):
        self.make()
        os.mkfifo(os.path.join(self.recordings, "pipe.recording"))
        os.mkdir(os.path.join(self.recordings, "folder.recording"))
        os.symlink("/dev/zero", os.path.join(self.recordings, "device.recording"))
        _, said = self.show()
        for name in ("pipe", "folder", "device"):
            self.assertIn(f'{name}.recording" is no file', said)
        self.assertEqual(len(self.model()["ranks"]), 2)

    def test_holds_few_files_open_at_once(self):
        self.make(ranks=100, events=10)
        path = os.path.join(self.folder, "report.html")
        command = f'ulimit -n 64 && exec "{cli.CLI}" report "{self.recordings}" --output "{path}"'
        result = self.ends(0, "-c", command, program="bash")
        self.assertNotIn("not shown", result.stdout)
        self.assertIn("100 ranks: nothing found", result.stdout)
        self.assertNotIn("left no recording", result.stdout)

    def test_exports_a_snapshot_of_plain_values(self):
        self.make()
        snapshot = self.snapshot()
        (trace,) = snapshot["device_traces"]
        actions = [event["action"] for event in trace]
        served, freed = actions.count("alloc"), actions.count("free_completed")
        self.assertEqual(served + freed, _EVENTS)
        self.assertEqual(actions.count("free_requested"), freed)
        self.assertEqual(actions.count("segment_alloc"), 65)
        self.assertEqual({event["stream"] for event in trace}, {0, 0x7e01})
        event = trace[actions.index("alloc")]
        self.assertEqual(set(event), {"action", "addr", "size", "stream", "time_us", "frames"})
        self.assertEqual([frame["filename"] for frame in event["frames"]], ["model.py", "train.py"])
        self.assertEqual(event["frames"][1], {"name": "main", "filename": "train.py", "line": 3})
        active = [block for segment in snapshot["segments"] for block in segment["blocks"]
                  if block["state"] == "active_allocated"]
        self.assertEqual(len(active), served - freed)
        for segment in snapshot["segments"]:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])

    def check_history(self, snapshot):
        history = SnapshotHistory(snapshot)
        while history.events:
            history.holds_all_blocks()
            history.back()
        self.assertEqual((history.blocks, history.segments), ({}, {}))

    def test_exports_a_snapshot_whose_memory_is_known_at_each_event(self):
        self.make(events=1000)
        snapshot = self.snapshot()
        self.assertFalse(any(segment["is_expandable"] for segment in snapshot["segments"]))
        self.check_history(snapshot)

    def test_exports_an_expandable_pool_as_pages_that_come_and_go(self):
        self.make("--expandable", events=1000)
        snapshot = self.snapshot()
        self.assertEqual([segment["is_expandable"] for segment in snapshot["segments"]], [False, True])
        self.check_history(snapshot)

    def test_exports_pages_that_an_expandable_pool_moves(self):
        rounds = [f"a {number} {size << 20} 0\n" for number, size in enumerate((30, 2, 30, 2, 30, 2))]
        rounds += ["f 0\nf 2\nf 4\n", "a 6 80000000 0\n", "f 1\nf 3\nf 5\nf 6\n"]
        self.ends(0, "replay", self.write("some.trace", "".join(rounds)), COMMPOOL_RECORD=self.recordings)
        snapshot = self.snapshot()
        actions = {event["action"] for event in snapshot["device_traces"][0]}
        self.assertLessEqual({"segment_map", "segment_unmap"}, actions)
        self.assertNotIn("segment_alloc", actions)
        self.check_history(snapshot)

    def test_exports_a_trace_that_replay_runs(self):
        self.make()
        path, said = self.show("--as", "trace", "--rank", "1", output="mine.trace")
        text = path.read_text(encoding="utf-8")
        _, peak, events = read_trace(text)
        self.assertEqual(events, _EVENTS)
        allocations = len(re.findall("^a ", text, re.MULTILINE))
        self.assertIn(f"{allocations:,} allocations".replace(",", ""), said.replace(",", ""))
        [row] = self.report("replay", str(path))["traces"]
        self.assertEqual(row["events"], _EVENTS)
        self.assertEqual(row["peak_requested_bytes"], peak)

    def test_shows_what_a_real_program_recorded(self):
        lines = [f"a {block} 5000000 0\n" for block in range(3)]
        lines += [f"a {block} {(block % 7 + 2) << 20} 0\nf {block - 3}\n" for block in range(3, 400)]
        self.ends(0, "replay", self.write("some.trace", "".join(lines)), COMMPOOL_RECORD=self.recordings)
        (rank,) = self.model()["ranks"]
        pool = max(rank["pools"], key=lambda pool: len(pool["blocks"]["bytes"]))
        self.assertEqual(len(pool["blocks"]["bytes"]) + sum(map(sum, pool["small"]["served"])), 400)
        self.assertNotIn(-1, pool["blocks"]["segment"])
        self.assertGreaterEqual(rank["peak"]["bytes"], 3 * 5000000)

    def test_refuses_what_it_cannot_read_or_write(self):
        self.refuses(4, "there is no", "report", self.recordings)
        os.mkdir(self.recordings)
        self.refuses(4, f"run the program with COMMPOOL_RECORD={self.recordings}", "report", self.recordings)
        self.make()
        of_rank_7 = ["report", self.recordings, "--as", "trace", "--rank", "7", "--output"]
        self.refuses(4, "rank 7 left no recording", *of_rank_7, os.devnull)
        self.refuses(4, "a page has all ranks", "report", self.recordings, "--rank", "0")
        kept = self.write("kept", "of another program")
        self.ends(4, *of_rank_7, kept)
        self.assertEqual(pathlib.Path(kept).read_text(encoding="utf-8"), "of another program")
        for place in (self.folder, "/dev/full"):
            self.refuses(4, f"cannot write {place}", "report", self.recordings, "--output", place)
