"""Options by words, sizes and objects, as the structs that the library takes."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import inspect
import os
from typing import Any, Callable, Iterable, Literal, Optional, Union

from . import _abi
from ._abi import (BackingWord as BackingWord, DriverWord as DriverWord, ExhaustionWord as ExhaustionWord,
                   FilterWord as FilterWord, FreesWord as FreesWord, GrantsWord as GrantsWord, GraphsWord as GraphsWord,
                   LocationWord as LocationWord, ModeWord as ModeWord, MovesWord as MovesWord,
                   StreamsWord as StreamsWord)
from .backings import UserBacking
from .errors import InvalidArgument, refusing
from .handles import Pointer, pointer_of
from .sizes import MOST_BYTES, Size, index_of, parse_size

# Both limits are included; None is no limit. A single size is the lower limit.
SizeRange = Union[Size, tuple[Optional[Size], Optional[Size]]]

KeepWord = Literal["discard", "host", "pageable", "files"]
_LEVELS: dict[int, KeepWord] = {1: "host", 2: "discard"}
_KEPT_IN = {"host": "pinned", "pageable": "pageable", "files": "files"}

NO_WORD = -1  # of an enumeration: the library refuses it


def refuse_unknown(function: str, words: Iterable[str], signature: inspect.Signature) -> None:
    """Raises TypeError for a keyword that a function does not take: with the nearest one, and all of them."""
    known = [name for name, parameter in signature.parameters.items() if parameter.kind == parameter.KEYWORD_ONLY]
    for word in words:
        if word not in signature.parameters:
            [nearest] = difflib.get_close_matches(word, known, 1, 0) or [""]
            raise TypeError(f"{function} got an unexpected keyword argument {word!r}: the nearest is {nearest}, and it "
                            f"takes {', '.join(known)}")


def text_of(option: str, text: str) -> bytes:
    """A text for C.

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


def sleep_by(call: Callable[[Any], Any], keep: KeepWord, graphs: GraphsWord,
             directory: Union[None, str, os.PathLike[str]], only: Optional[Iterable[Pointer]], retain: bool,
             constant: Iterable[Pointer], level: Optional[int] = None) -> None:
    """Makes a call with the commpool_sleep_options for the words of Pool.sleep. If a word is unknown, the options are
    invalid, so that the library refuses them on all ranks.
    """
    with refusing(lambda _: call(ctypes.byref(_sleep_options(keep=NO_WORD)))):
        given = _sleep_options(retain=bool(retain))
        _fill(given, _kept_at(level, keep), graphs, directory, only, constant)
    call(ctypes.byref(given))


def _kept_at(level: Optional[int], keep: KeepWord) -> KeepWord:
    """What vLLM's level keeps; without one `keep`."""
    if level is None:
        return keep
    if level not in _LEVELS or keep not in ("discard", _LEVELS[level]):
        raise InvalidArgument(f"level {level!r} is neither 1 (keep=\"host\") nor 2 (keep=\"discard\"), or keep= says "
                              "something else")
    return _LEVELS[level]


def _sleep_options(**fields: int) -> Any:
    given = _abi.CSleepOptions()
    for name, value in fields.items():
        setattr(given, name, value)
    return given


def _fill(given: Any, keep: KeepWord, graphs: GraphsWord, directory: Union[None, str, os.PathLike[str]],
          only: Optional[Iterable[Pointer]], constant: Iterable[Pointer]) -> None:
    if keep != "discard" and keep not in _KEPT_IN:
        raise InvalidArgument(f"keep {keep!r} is none of discard, {', '.join(_KEPT_IN)}")
    given.graphs = number_of("graphs", graphs)
    given.keep = number_of("keep", "discard" if keep == "discard" else "host")
    given.kept_in = number_of("kept_in", _KEPT_IN.get(keep, "pinned"))
    if (directory is not None) != (keep == "files"):
        raise InvalidArgument(f"keep=\"files\" and directory= belong together, and they are {keep!r} and {directory!r}")
    if directory is not None:
        given.directory = text_of("directory", os.fspath(directory))
    if only is not None:
        if keep == "discard":
            raise InvalidArgument("only= names what is kept, and keep is \"discard\"")
        given.blocks, given.block_count = _pointers("only", only)
    given.constants, given.constant_count = _pointers("constant", constant)


def _pointers(option: str, objects: Iterable[Pointer]) -> tuple[Any, int]:
    """The objects' addresses as a C array, and their number."""
    if not isinstance(objects, Iterable) or hasattr(objects, "__cuda_array_interface__"):  # an array has rows
        raise InvalidArgument(f"{option} {objects!r} is no list: write {option}=[tensor]")
    addresses = list(map(pointer_of, objects))
    return (ctypes.c_void_p * len(addresses))(*addresses), len(addresses)


def give(options: Any, **given: Any) -> None:
    """Sets the options that the program gave. COMMPOOL_CONF does not change these, even if they equal the default. None
    leaves an option to COMMPOOL_CONF and the default.
    """
    for name, value in given.items():
        if value is None:
            continue
        if hasattr(options, f"{name}_bytes"):
            setattr(options, f"{name}_bytes", parse_size(value, name))
        elif name == "deadline":
            options.deadline_ms = index_of(value, "deadline_ms")
        elif name == "budget":
            options.budget = text_of(name, getattr(value, "name", value))
        else:
            setattr(options, name, number_of(name, value))
        options.given |= number_of("option", name)


def set_backing(options: Any, backing: Union[None, BackingWord, UserBacking]) -> None:
    """Sets a backing: a word, or a user's backing with its functions."""
    if isinstance(backing, UserBacking):
        options.user_allocate, options.user_free = backing.allocate, backing.free
        backing = "user"
    elif backing == "user":
        raise InvalidArgument("backing \"user\" needs functions: pass a commpool.UserBacking")
    give(options, backing=backing)


def size_range(sizes: Optional[SizeRange]) -> tuple[int, int]:
    """The lower and the upper limit of the sizes that a scope catches."""
    if isinstance(sizes, (tuple, list)) and len(sizes) != 2:
        raise InvalidArgument(f"sizes {sizes!r} are not (least, most): None is no limit")
    least, most = sizes if isinstance(sizes, (tuple, list)) else (sizes, None)
    return (parse_size(least, "sizes") if least is not None else 0,
            parse_size(most, "sizes") if most is not None else MOST_BYTES)


def scope_options(filter: FilterWord, exhaustion: ExhaustionWord, stream: int, sizes: Optional[SizeRange]) -> Any:
    """commpool_scope_options from words."""
    options = _abi.CScopeOptions()
    options.filter, options.exhaustion = number_of("filter", filter), number_of("exhaustion", exhaustion)
    options.stream = stream
    options.min_bytes, options.max_bytes = size_range(sizes)
    return options
