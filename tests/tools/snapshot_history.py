"""A snapshot's memory at each of its events, as memory_viz finds it: from the end backwards."""


class SnapshotHistory:
    """Takes back event after event. It raises where an event has no memory that it could be of."""

    def __init__(self, snapshot, device=0):
        self.events = list(snapshot["device_traces"][device])
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        self.segments = {segment["address"]: (segment["total_size"], segment["stream"]) for segment in segments}
        self.blocks = {block["address"]: block["size"] for segment in segments for block in segment["blocks"]
                       if block["state"] == "active_allocated"}

    def back(self):
        event = self.events.pop()
        address, size, stream = event["addr"], event["size"], event["stream"]
        match event["action"]:
            case "alloc":
                assert self.blocks.pop(address) == size, event
            case "free_completed":
                self.blocks[address] = size
            case "segment_alloc":
                assert self.segments.pop(address)[0] == size, event
            case "segment_free":
                self.segments[address] = (size, stream)
            case "segment_map":
                self._unmap(address, address + size)
            case "segment_unmap":
                self._map(address, size, stream)
            case action:
                assert action == "free_requested", action

    def segment_of(self, begin, end):
        found = [segment for segment, (size, _) in self.segments.items() if segment <= begin and end <= segment + size]
        assert len(found) == 1, f"{len(found)} segments hold {begin:#x} to {end:#x}"
        return found[0]

    def holds_all_blocks(self):
        for block, size in self.blocks.items():
            self.segment_of(block, block + size)

    def _unmap(self, begin, end):
        segment = self.segment_of(begin, end)
        size, stream = self.segments.pop(segment)
        if segment < begin:
            self.segments[segment] = (begin - segment, stream)
        if end < segment + size:
            self.segments[end] = (segment + size - end, stream)

    def _map(self, address, size, stream):
        """Ranges that touch join, where their stream is one."""
        if self.segments.get(address + size, (0, None))[1] == stream:
            size += self.segments.pop(address + size)[0]
        for segment, (before, its) in list(self.segments.items()):
            if segment + before == address and its == stream:
                address, size = segment, before + size
        self.segments[address] = (size, stream)
