"""Options by words, sizes and objects, as the structs that the library takes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Iterable, Literal, Optional, Union

from . import _abi
from ._abi import (BackingWord as BackingWord, DriverWord as DriverWord, ExhaustionWord as ExhaustionWord,
                   FilterWord as FilterWord, FreesWord as FreesWord, GraphsWord as GraphsWord,
                   LocationWord as LocationWord, ModeWord as ModeWord, MovesWord as MovesWord,
                   StreamsWord as StreamsWord)
from .backings import UserBacking
from .errors import InvalidArgument
from .handles import Pointer, pointer_of
from .sizes import MOST_BYTES, Size, index_of, parse_size

# Both ends are in; None is no limit. A size alone is the least.
SizeRange = Union[Size, tuple[Optional[Size], Optional[Size]]]

KeepWord = Literal["discard", "host", "pageable", "files"]
_KEPT_IN = {"host": "pinned", "pageable": "pageable", "files": "files"}

_NO_WORD = -1


def text_of(option: str, text: str) -> bytes:
    """A text as C has it.

    Raises:
      InvalidArgument: the option is no text, or none that C and UTF-8 can hold.
    """
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(text, str) and "\0" not in text:
            return text.encode()
    raise InvalidArgument(f"{option} {text!r} is no text")


def number_of(enumeration: str, word: str) -> int:
    """The number of a word of an enumeration of commpool.h.

    Raises:
      InvalidArgument: the enumeration has no such word.
    """
    words = _abi.WORDS[f"commpool_{enumeration}"]
    if not isinstance(word, str) or word not in words:
        raise InvalidArgument(f"{enumeration} {word!r} is none of {', '.join(words)}")
    return words[word]


def number_for_all(enumeration: str, word: str) -> int:
    """As `number_of`; for what is no word a number that is none, which the library refuses on all ranks."""
    try:
        return number_of(enumeration, word)
    except InvalidArgument:
        return _NO_WORD


class SleepOptions:
    """commpool_sleep_options of words. What is wrong with them is raised by `check`, after the library has refused
    them: the other ranks of a symmetric pool hear of it.
    """

    def __init__(self, keep: KeepWord, graphs: GraphsWord, directory: Union[None, str, os.PathLike[str]],
                 only: Optional[Iterable[Pointer]], retain: bool, constant: Iterable[Pointer]) -> None:
        """As of Pool.sleep."""
        self.struct = _abi.CSleepOptions()
        self._wrong: Optional[InvalidArgument] = None
        try:
            self._fill(keep, graphs, directory, only, constant)
        except InvalidArgument as error:
            self.struct.keep, self._wrong = _NO_WORD, error
        self.struct.retain = bool(retain)

    def _fill(self, keep: KeepWord, graphs: GraphsWord, directory: Union[None, str, os.PathLike[str]],
              only: Optional[Iterable[Pointer]], constant: Iterable[Pointer]) -> None:
        if keep != "discard" and keep not in _KEPT_IN:
            raise InvalidArgument(f"keep {keep!r} is none of discard, {', '.join(_KEPT_IN)}")
        self.struct.graphs = number_of("graphs", graphs)
        self.struct.keep = number_of("keep", "discard" if keep == "discard" else "host")
        self.struct.kept_in = number_of("kept_in", _KEPT_IN.get(keep, "pinned"))
        if (directory is not None) != (keep == "files"):
            raise InvalidArgument(f"keep=\"files\" and directory= belong together, and they are {keep!r} and "
                                  f"{directory!r}")
        if directory is not None:
            self.struct.directory = text_of("directory", os.fspath(directory))
        if only is not None:
            if keep == "discard":
                raise InvalidArgument("only= names what is kept, and keep is \"discard\"")
            self.struct.blocks, self.struct.block_count = _pointers(only)
        self.struct.constants, self.struct.constant_count = _pointers(constant)

    def check(self) -> None:
        """Raises what is wrong here."""
        if self._wrong is not None:
            raise self._wrong


def _pointers(objects: Iterable[Pointer]) -> tuple[Any, int]:
    """Their addresses as an array of C's."""
    addresses = list(map(pointer_of, objects))
    return (ctypes.c_void_p * len(addresses))(*addresses), len(addresses)


def give(options: Any, **given: Any) -> None:
    """Sets what the program gave: COMMPOOL_CONF leaves it alone, also where it is the default's. None leaves what that
    says, or the library's default.
    """
    for name, value in given.items():
        if value is None:
            continue
        if hasattr(options, f"{name}_bytes"):
            setattr(options, f"{name}_bytes", parse_size(value, name))
        elif name == "deadline":
            options.deadline_ms = index_of(value, "deadline_ms")
        else:
            setattr(options, name, number_of(name, value))
        options.given |= number_of("option", name)


def set_backing(options: Any, backing: Union[None, BackingWord, UserBacking]) -> None:
    """A backing by its word, or a user's with its functions."""
    if isinstance(backing, UserBacking):
        options.user_allocate, options.user_free = backing.allocate, backing.free
        backing = "user"
    elif backing == "user":
        raise InvalidArgument("backing \"user\" needs functions: pass a commpool.UserBacking")
    give(options, backing=backing)


def size_range(sizes: Optional[SizeRange]) -> tuple[int, int]:
    """The least and the most of what a scope catches."""
    if isinstance(sizes, (tuple, list)) and len(sizes) != 2:
        raise InvalidArgument(f"sizes {sizes!r} are not (least, most): None is no limit")
    least, most = sizes if isinstance(sizes, (tuple, list)) else (sizes, None)
    return (parse_size(least, "sizes") if least is not None else 0,
            parse_size(most, "sizes") if most is not None else MOST_BYTES)


def scope_options(filter: FilterWord, exhaustion: ExhaustionWord, stream: int, sizes: Optional[SizeRange]) -> Any:
    """commpool_scope_options of words."""
    options = _abi.CScopeOptions()
    options.filter, options.exhaustion = number_of("filter", filter), number_of("exhaustion", exhaustion)
    options.stream = stream
    options.min_bytes, options.max_bytes = size_range(sizes)
    return options
