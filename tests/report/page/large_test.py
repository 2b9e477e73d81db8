"""A report as large as they get: many ranks, a million blocks."""

import random
import time

from page_fixture import Page
from pool_recorder import PoolRecorder

_END = 60_000_000_000
_SLOTS = 512
_POINTS = 2000


def _blocks(numbers, count):
    """Slots of 1 MiB in segments of 64 MiB; in each, block after block."""
    length = _END // (count // _SLOTS + 1)
    rows = []
    for turn in range(count // _SLOTS):
        for slot in range(_SLOTS):
            begin = turn * length + numbers.randrange(length // 2)
            size = numbers.randrange(1, 2048) * 512
            rows.append((slot // 64, (slot % 64) << 20, size, size - 100, begin, begin + length // 2, slot % 4,
                         4 + slot % 60))
    return dict(zip(("segment", "offset", "bytes", "requested", "from", "to", "stream", "stack"), zip(*rows)))


def _pool(numbers, name, count):
    times = [_END // _POINTS * point for point in range(_POINTS)]
    allocated = [numbers.randrange(200, 460) << 20 for _ in times]
    segments = _SLOTS // 64
    return {**PoolRecorder(name, "vmm fixed", 0, 0).model(),
            "bytes": {"time": times, "reserved": [512 << 20] * _POINTS, "allocated": allocated,
                      "requested": [value * 9 // 10 for value in allocated], "cached": [16 << 20] * _POINTS},
            "segments": {"address": [hex(0x7F0000000000 + (index << 27)) for index in range(segments)],
                         "bytes": [64 << 20] * segments, "from": [0] * segments, "to": [-1] * segments},
            "blocks": _blocks(numbers, count), "left_out": {"blocks": 12, "bytes": 6144}}


def _rank(numbers, rank, count):
    events = 3000
    begin = sorted(numbers.randrange(_END) for _ in range(events))
    return {"rank": rank, "host": f"node{rank // 8}", "pid": 1000 + rank, "program": "train.py", "notes": [],
            "begin": 0,
            "pools": [_pool(numbers, "activations", count // 2), _pool(numbers, "gradients", count - count // 2)],
            "events": {"kind": ["agreement", "growth", "scope"] * (events // 3), "pool": [0, 1, -1] * (events // 3),
                       "from": begin, "to": [time + 3_000_000 for time in begin], "text": ["call"] * events,
                       "waited_for": [-1] * events, "failed": [0] * events},
            "peak": {"time": _END // 2, "bytes": 460 << 20, "holders": []}}


def _large_model(ranks=64, blocks=1_000_000):
    numbers = random.Random(5)
    count = -(-blocks // ranks // (2 * _SLOTS)) * 2 * _SLOTS
    return {"version": 1, "title": f"{ranks} ranks", "notes": [], "end": _END,
            "texts": [f"file{number}.py:{number} function{number}\nmain.py:1 main" for number in range(64)],
            "ranks": [_rank(numbers, rank, count) for rank in range(ranks)], "difference": None}


class Large(Page):

    def test_a_large_model_shows_its_first_picture(self):
        self.open(_large_model())
        seconds = self.browser.run("return performance.getEntriesByName('first picture')[0].startTime") / 1000
        print(f"\n64 ranks with 1,000,000 blocks: the first picture came after {seconds:.2f} s", flush=True)
        begin = time.monotonic()
        self.assertIn("blocks", self.search(">1000 KiB"))
        print(f"a search through all of it took {time.monotonic() - begin:.2f} s", flush=True)
