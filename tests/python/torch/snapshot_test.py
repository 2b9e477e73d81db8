"""torch's snapshots and recorded history have our segments, blocks, stacks and events, as memory_viz reads them."""

import pathlib
import pickle
import tempfile

import torch
from torch.cuda import _memory_viz

from on_emulator import blocks_of
from routed import MIB, RoutedCase, commpool, tensor, tensor_in


def make_in_snapshot_test():
    return tensor(3 * MIB)


class Snapshots(RoutedCase):
    def setUp(self):
        self.addCleanup(torch.cuda.memory._record_memory_history, None)

    def segments_of(self, pool, snapshot):
        addresses = {segment.pointer for segment in pool.snapshot().segments}
        return [segment for segment in snapshot["segments"] if segment["address"] in addresses]

    def test_show_our_blocks_with_torch_s(self):
        pool = self.pool()
        native = tensor(3 * MIB)
        ours = tensor_in(pool, 3 * MIB)
        tensor_in(pool)
        segments = torch.cuda.memory._snapshot()["segments"]
        for of_either in (ours, native):
            block = blocks_of(segments)[of_either.data_ptr()]
            self.assertEqual((block["state"], block["requested_size"]), ("active_allocated", 3 * MIB))
        for segment in segments:
            place = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], place)
                place += block["size"]
            self.assertEqual(place, segment["address"] + segment["total_size"])

    def test_have_stacks_and_events_while_history_is_recorded(self):
        pool = self.pool()
        torch.cuda.memory._record_memory_history(max_entries=1000)
        native = make_in_snapshot_test()
        with commpool.use_pool(pool):
            ours, address = make_in_snapshot_test(), make_in_snapshot_test().data_ptr()
        snapshot = torch.cuda.memory._snapshot()
        for of_either in (native, ours):
            block = blocks_of(snapshot["segments"])[of_either.data_ptr()]
            self.assertIn("make_in_snapshot_test", [frame["name"] for frame in block["frames"]])
        trace = snapshot["device_traces"][0]
        events = [(event["action"], event["size"]) for event in trace if event["addr"] == address]
        self.assertEqual(events, [("alloc", 3 * MIB), ("free_requested", 3 * MIB), ("free_completed", 3 * MIB)])
        times = [event["time_us"] for event in trace]
        self.assertEqual(times, sorted(times))
        made, = [event for event in trace if event["addr"] == ours.data_ptr() and event["action"] == "alloc"]
        self.assertIn("make_in_snapshot_test", [frame["name"] for frame in made["frames"]])

    def test_keep_as_many_events_as_asked_and_none_of_before(self):
        pool = self.pool()
        torch.cuda.memory._record_memory_history(max_entries=4)
        for _ in range(10):
            tensor_in(pool)
        actions = [event["action"] for event in torch.cuda.memory._snapshot()["device_traces"][0]]
        self.assertLessEqual(len(actions), 8, "4 of torch's and 4 of ours")
        torch.cuda.memory._record_memory_history(None)
        tensor_in(pool)
        self.assertEqual([event for event in torch.cuda.memory._snapshot()["device_traces"][0]
                          if event["action"] == "alloc"], [])

    def test_open_in_memory_viz(self):
        pool = self.pool("seen")
        torch.cuda.memory._record_memory_history(max_entries=1000)
        with commpool.use_pool(pool):
            kept = make_in_snapshot_test()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "snapshot.pickle")
            torch.cuda.memory._dump_snapshot(str(file))
            dumped = pickle.loads(file.read_bytes())
        self.assertIn(kept.data_ptr(), blocks_of(dumped["segments"]))
        segment, = self.segments_of(pool, dumped)
        place, offset = dumped["segments"].index(segment), kept.data_ptr() - segment["address"]
        self.assertRegex(_memory_viz.trace(dumped), rf"\w+ = seg_{place}\[{offset}:3.0MiB\]")
        self.assertIn("total_allocated: 3.0MiB", _memory_viz.segsum({"segments": [segment]}))
        self.assertIn("make_in_snapshot_test", _memory_viz.memory(dumped, format_flamegraph=str))
        for draw in (_memory_viz.segsum, _memory_viz.trace_plot, _memory_viz.segment_plot):
            self.assertTrue(draw(dumped))

    def test_of_an_expandable_pool_show_what_is_mapped(self):
        pool = self.pool(mode="expandable")
        kept = tensor_in(pool, 3 * MIB)
        tensor_in(pool, 30 * MIB)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        ours = self.segments_of(pool, torch.cuda.memory._snapshot())
        self.assertEqual(sum(segment["total_size"] for segment in ours), pool.stats().reserved_bytes.current)
        self.assertIn(kept.data_ptr(), blocks_of(ours))
