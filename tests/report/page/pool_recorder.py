"""Records a pool as the model of a report has it: first fit, in segments of one size."""

import bisect


class PoolRecorder:

    def __init__(self, name, kind, segment_bytes, first_address):
        self.now = 0
        self._name, self._kind = name, kind
        self._segment_bytes, self._address = segment_bytes, first_address
        self._taken = []  # of each segment, in order: (offset, bytes, block)
        self._place = {}
        self._segments = {"address": [], "bytes": [], "from": [], "to": []}
        self._blocks = {name: [] for name in
                        ("segment", "offset", "bytes", "requested", "from", "to", "stream", "stack")}
        self._bytes = {name: [] for name in ("time", "reserved", "allocated", "requested", "cached", "pending")}
        self._held = {"allocated": 0, "requested": 0, "cached": 0, "pending": 0}

    def _grow(self, at_least):
        size = max(self._segment_bytes, at_least)
        for name, value in (("address", hex(self._address)), ("bytes", size), ("from", self.now), ("to", -1)):
            self._segments[name].append(value)
        self._address += 2 * size
        self._taken.append([])
        return len(self._taken) - 1

    def _offset(self, segment, size):
        end = 0
        for offset, length, _ in self._taken[segment]:
            if offset - end >= size:
                return end
            end = offset + length
        return end if self._segments["bytes"][segment] - end >= size else None

    def _find(self, size):
        for segment in range(len(self._taken)):
            offset = self._offset(segment, size)
            if offset is not None:
                return segment, offset
        return self._grow(size), 0

    def _note(self):
        values = {"time": self.now, "reserved": sum(self._segments["bytes"]), **self._held}
        for name, value in values.items():
            self._bytes[name].append(value)

    def allocate(self, requested, stream, stack):
        size = -(-requested // 512) * 512
        segment, offset = self._find(size)
        block = len(self._blocks["bytes"])
        values = (segment, offset, size, requested, self.now, -1, stream, stack)
        for name, value in zip(self._blocks, values):
            self._blocks[name].append(value)
        bisect.insort(self._taken[segment], (offset, size, block))
        self._held["allocated"] += size
        self._held["requested"] += requested
        self._note()
        return block

    def free(self, block):
        segment, offset, size = (self._blocks[name][block] for name in ("segment", "offset", "bytes"))
        self._taken[segment].remove((offset, size, block))
        self._blocks["to"][block] = self.now
        self._held["allocated"] -= size
        self._held["requested"] -= self._blocks["requested"][block]
        self._held["pending"] = size
        self._held["cached"] = min(self._held["cached"] + size // 8, sum(self._segments["bytes"]) // 20)
        self._note()

    def model(self, **more):
        registrations = {name: [] for name in ("segment", "communicator", "kind", "from", "to", "cost")}
        return {"name": self._name, "kind": self._kind, "device": 0, "from": 0, "to": -1, "bytes": self._bytes,
                "segments": self._segments, "asleep": {"from": [], "to": []}, "registrations": registrations,
                "blocks": self._blocks, "left_out": {"blocks": 0, "bytes": 0},
                "small": {"bytes": [], "time": [], "served": [], "held": []}, **more}
