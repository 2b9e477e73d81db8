"""Writes traces of allocations: text, an event a line, as tests/data/traces/README.md describes."""

import lzma
import pathlib


class Trace:
    """A program's allocations and frees, in order. A block is the number that `allocate` returns."""

    def __init__(self):
        self._lines = []
        self._live = {}
        self._streams = {}
        self._next = 0
        self._requested = 0
        self.peak_requested = 0

    def __len__(self):
        return len(self._lines)

    def allocate(self, size, stream=0):
        if size <= 0:
            raise ValueError("an allocation of no bytes")
        block = self._next
        self._next += 1
        number = self._streams.setdefault(stream, len(self._streams))
        self._live[block] = size
        self._requested += size
        self.peak_requested = max(self.peak_requested, self._requested)
        self._lines.append(f"a {block} {size} {number}")
        return block

    def free(self, block):
        self._requested -= self._live.pop(block)
        self._lines.append(f"f {block}")

    def live(self):
        return list(self._live)

    def text(self):
        return "# a ID BYTES STREAM | f ID   (bytes as requested; streams numbered by first use)\n" + "".join(
            line + "\n" for line in self._lines
        )

    def write(self, path):
        """To a file whose name ends in .trace or .trace.xz."""
        content = self.text().encode()
        path = pathlib.Path(path)
        path.write_bytes(lzma.compress(content, preset=6) if path.suffix == ".xz" else content)
