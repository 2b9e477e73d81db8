"""What a pool tells of itself: its state, statistics, settings and blocks."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from . import _abi
from ._library import library, listed, value_of
from .errors import CommpoolError, NotFound
from .options import number_of
from .sizes import format_size, parse_size
from .statistics import Configuration, Snapshot, Statistics, block_of_struct, settings_of

_NO_LIMIT = "none"


class Inspected:
    """The part of a Pool that asks and changes nothing but peaks."""

    __slots__ = ()

    name: str
    handle: int
    device: int
    backing: str
    mode: str

    @property
    def closed(self) -> bool:
        """Whether it serves no more: `close` was called, or `destroy`."""
        return self._state() == "closed"

    @property
    def asleep(self) -> bool:
        """Whether its memory was given back, by `sleep`, and `wake` makes it again."""
        return self._state() == "asleep"

    @property
    def symmetric(self) -> bool:
        """Whether its blocks lie at equal offsets on every rank of a communicator."""
        return self.mode == "symmetric"

    @property
    def limit(self) -> Optional[int]:
        """The most bytes that it may reserve; None for no limit of its own."""
        [said] = [setting.value for setting in self.config() if setting.key == "limit"]
        return None if said == _NO_LIMIT else parse_size(said, "limit")

    def _state(self) -> str:
        try:
            return next((setting.value for setting in self.config() if setting.key == "state"), "open")
        except NotFound:
            return "closed"

    def _read(self, peaks: _abi.PeaksWord) -> Any:
        statistics = _abi.CStatistics()
        library.pool_statistics(self.handle, number_of("peaks", peaks), ctypes.byref(statistics))
        return statistics

    def stats(self) -> Statistics:
        """What the pool has and did, now."""
        return value_of(Statistics, self._read("stay"))  # type: ignore[no-any-return]

    def reset_peaks(self) -> None:
        """Starts the peaks anew at the current figures."""
        self._read("reset")

    def config(self) -> Configuration:
        """What is in force for this pool, and where it came from."""
        return settings_of(self.handle)

    def snapshot(self) -> Snapshot:
        """All segments and blocks. Other threads go on: it shows one moment."""
        return Snapshot(tuple(map(block_of_struct, listed(_abi.CBlock, library.pool_blocks, self.handle))))

    def __repr__(self) -> str:
        head = f"<commpool.Pool {self.name!r}, device {self.device}, {self.backing} {self.mode}"
        try:
            statistics = self.stats()
        except CommpoolError:
            return f"{head}: destroyed>"
        if self.closed:
            left = statistics.allocated_bytes.current
            return f"{head}: closed{f', {format_size(left)} still in use' if left else ''}>"
        asleep = f", {format_size(statistics.asleep_bytes)} asleep" if statistics.asleep_bytes else ""
        return (f"{head}: {format_size(statistics.allocated_bytes.current)} in use of "
                f"{format_size(statistics.reserved_bytes.current)} reserved{asleep}>")

    def _repr_html_(self) -> str:
        import html

        try:
            statistics = self.stats()._repr_html_()
        except CommpoolError:
            statistics = ""
        return f"<b>{html.escape(repr(self)[1:-1])}</b>{statistics}"
