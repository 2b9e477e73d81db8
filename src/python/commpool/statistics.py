"""What a pool tells about itself: statistics, blocks, segments, and which options hold and who set them (a default,
COMMPOOL_CONF, or code), as values that can print themselves."""

from __future__ import annotations

import dataclasses
import html
import inspect
from typing import Any, Literal, NamedTuple

from . import _abi
from ._abi import Counter as Counter, Setting as Setting
from ._library import library, listed, value_of
from .handles import Device, known_device
from .sizes import format_size

_STATES = {number: word for word, number in _abi.WORDS["commpool_block_state"].items()}


def _shown(name: str, figure: int) -> str:
    return format_size(figure) if name.endswith("bytes") else f"{figure:,}"


@dataclasses.dataclass(frozen=True)
class Statistics(_abi.Statistics):
    """The numbers of a pool at one moment. A `Counter` has `current`, `peak` and `total`."""

    __doc__ += "\n\n" + inspect.cleandoc(_abi.Statistics.__doc__ or "")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, current value, peak and total of each number, as text. Plain numbers have no peak and no total."""
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, Counter) else (value,)
            texts = [_shown(field.name, figure) for figure in numbers] + ["", ""]
            shown.append((field.name.replace("_", " "), texts[0], texts[1], texts[2]))
        return shown

    def __str__(self) -> str:
        lines = [("", "now", "peak", "total"), *self.rows()]
        return "\n".join(f"{name:26}{now:>12}{peak:>12}{total:>12}".rstrip() for name, now, peak, total in lines)

    def _repr_html_(self) -> str:
        return table(("", "now", "peak", "total"), self.rows())


class Block(_abi.Block):
    """A block of a pool at one moment."""

    __slots__ = ()
    __doc__ = (__doc__ or "") + "\n\n" + inspect.cleandoc(_abi.Block.__doc__ or "")


Block.__module__ = "commpool"


def block_of_struct(struct: Any) -> Block:
    """A commpool_block with its state as a word."""
    block: Block = value_of(Block, struct)
    return block._replace(state=_STATES.get(struct.state, str(struct.state)))


class Segment(NamedTuple):
    """A contiguous range of memory, filled by the pool's blocks."""

    pointer: int
    bytes: int
    number: int


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A pool's blocks by segment and address, at one moment."""

    blocks: tuple[Block, ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of the blocks, ordered by number."""
        found: list[Segment] = []
        for block in self.blocks:
            if not found or found[-1].number != block.segment:
                found.append(Segment(block.pointer, 0, block.segment))
            last = found[-1]
            found[-1] = last._replace(bytes=last.bytes + block.bytes)
        return tuple(found)

    def _repr_html_(self) -> str:
        rows = [(str(block.segment), hex(block.pointer), format_size(block.bytes), block.state,
                 format_size(block.requested_bytes) if block.state == "live" else "") for block in self.blocks]
        return table(("segment", "address", "size", "state", "requested"), rows)


def table(heads: tuple[str, ...], rows: Any) -> str:
    """An HTML table for notebooks, with numbers aligned on the right."""

    def line(tag: str, cells: tuple[str, ...]) -> str:
        shown = "".join(f'<{tag} style="text-align:{"right" if place else "left"}">{html.escape(cell)}</{tag}>'
                        for place, cell in enumerate(cells))
        return f"<tr>{shown}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', heads)}</thead><tbody>{body}</tbody></table>"


AccessWord = Literal["read-write", "read", "none"]


class Configuration(tuple[Setting, ...]):
    """Settings, which print as a table."""

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(f"{setting.pool}.{setting.key}" if setting.pool else setting.key, setting.value, setting.source)
                for setting in self]

    def __repr__(self) -> str:
        rows = self._rows()
        first, second = (max((len(row[column]) for row in rows), default=0) + 2 for column in (0, 1))
        return "\n".join(f"{key:{first}}{value:{second}}{source}" for key, value, source in rows)

    def _repr_html_(self) -> str:
        return table(("key", "value", "from"), self._rows())


def settings_of(pool: int) -> Configuration:
    """The settings of the pool with a handle; 0: of pools that are not made yet."""
    return Configuration(value_of(Setting, each) for each in listed(_abi.CSetting, library.configuration, pool))


def access_in(settings: Configuration, device: Device) -> AccessWord:
    """What the settings of a pool say of a device, or of "cpu"."""
    name = "cpu" if str(device) == "cpu" else str(known_device(device))
    [users] = [setting.value for setting in settings if setting.key == "access"]
    if f"{name}:read" in users.split():
        return "read"
    return "read-write" if name in users.split() else "none"


def config() -> Configuration:
    """The settings of pools that are not made yet: COMMPOOL_CONF and defaults. Opens no driver.

    Raises:
      InvalidArgument: COMMPOOL_CONF is wrong; the message lists the known keys.
    """
    return settings_of(0)
