"""Sizes in bytes, as integers or as text for people."""

from __future__ import annotations

import operator
import re
from typing import Any, Union

from .errors import InvalidArgument

Size = Union[int, str]

MOST_BYTES = 2**64 - 1
_UNITS = "KMGTP"
# The library's command line takes the same text. Every unit is binary: "2GB" is "2GiB".
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGTP])(?:i?B)?|B)?\s*", re.IGNORECASE)


def parse_size(size: Size, what: str = "size") -> int:
    """The bytes of a size: 4096, "512 B", "64K", "1.5GiB" (every unit is a power of 1024).

    Raises:
      InvalidArgument: it is not a size, is negative, or needs more than 64 bits.
    """
    if isinstance(size, str):
        match = _TEXT.fullmatch(size)
        if not match:
            raise InvalidArgument(f"{what} {size!r} is no size: write bytes, or \"64MiB\" or \"1.5GiB\"")
        number, unit = match.groups()
        factor = 1024 ** (_UNITS.index(unit.upper()) + 1) if unit else 1
        size = int(number) * factor if number.isdigit() else int(float(number) * factor)
    elif isinstance(size, bool):
        raise InvalidArgument(f"{what} {size!r} is no size")
    return index_of(size, what)


def index_of(value: Any, what: str, bits: int = 64) -> int:
    """Reads an unsigned integer of at most so many bits, from anything that is an index (such as a NumPy integer)."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} {value!r} is no integer") from None
    if not 0 <= number < 2**bits:
        raise InvalidArgument(f"{what} {number} is not between 0 and 2^{bits} - 1")
    return number


def format_size(count: int) -> str:
    """Writes a size as the library does: "512 B", "1.5 GiB"."""
    if count < 1024:
        return f"{count} B"
    figure, unit = float(count), 0
    while figure >= 1024 and unit < len(_UNITS):
        figure, unit = figure / 1024, unit + 1
    text = f"{figure:.1f}"
    return f"{text[:-2] if text.endswith('.0') else text} {_UNITS[unit - 1]}iB"
