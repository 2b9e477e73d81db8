"""What programs are built against: functions, structs, enumerations and types of a commpool.h, and how two differ.

Until 1.0 a program runs on the minor version that it was built with: so whatever differs comes with a higher minor
version, whose header is then the one that is kept.
"""

import re

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_VERSION = re.compile(r"^#define COMMPOOL_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_FUNCTION = re.compile(r"\bCOMMPOOL_API\s+([^;(]*?)\b(commpool_\w+)\s*\(([^;]*)\)\s*;")
_STRUCT = re.compile(r"\btypedef struct (\w+) \{(.*?)\} \1\s*;", re.DOTALL)
_ENUM = re.compile(r"\btypedef enum (\w+) \{(.*?)\} \1\s*;", re.DOTALL)
_TYPE = re.compile(r"\btypedef (?!struct \w+ \{|enum )([^;{]+);")


def _words(text):
    return re.sub(r"\s*([*(),])\s*", r"\1", " ".join(text.split()))


def _without_name(parameter):
    """`const void* pointer` is `const void*`: a parameter's name binds nobody."""
    parameter = _words(parameter)
    return re.sub(r"(?<=[\s*])\w+$", "", parameter).rstrip() if re.search(r"[\s*]\w+$", parameter) else parameter


def _enumerators(body):
    pairs = (entry.split("=") for entry in body.split(",") if entry.strip())
    return {name.strip(): int(value) for name, value in pairs}


class Abi:
    """The binary interface that the text of a header declares."""

    def __init__(self, header):
        self.version = tuple(int(dict(_VERSION.findall(header))[part]) for part in ["MAJOR", "MINOR", "PATCH"])
        text = _DIRECTIVE.sub("", _COMMENT.sub(" ", header))
        self.functions = {
            name: (_words(answer), [_without_name(parameter) for parameter in parameters.split(",")])
            for answer, name, parameters in _FUNCTION.findall(text)
        }
        self.structs = {name: [_words(field) for field in body.split(";") if field.strip()]
                        for name, body in _STRUCT.findall(text)}
        self.enums = {name: _enumerators(body) for name, body in _ENUM.findall(text)}
        self.types = {_words(declaration) for declaration in _TYPE.findall(text)}

    def content(self):
        """What each name means to a program: {"function commpool_free": ...}."""
        values = {f"{word} of {name}": value for name, words in self.enums.items() for word, value in words.items()}
        return {**{f"function {name}": signature for name, signature in self.functions.items()},
                **{f"struct {name}": fields for name, fields in self.structs.items()},
                **values, **{f"type {declaration}": "as it is" for declaration in self.types}}


def _minor(abi):
    return f"{abi.version[0]}.{abi.version[1]}"


def problems(kept_header, header):
    """Of today's header, beside the one that is kept of its minor version."""
    kept, today = Abi(kept_header), Abi(header)
    if kept.version[:2] != today.version[:2]:
        return [f"the kept header is of {_minor(kept)}, and commpool.h of {_minor(today)}: keep that one instead"]
    old, new = kept.content(), today.content()
    return [f"{name} was {old.get(name, 'not there')} and is {new.get(name, 'not there')}: raise the minor version"
            for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
