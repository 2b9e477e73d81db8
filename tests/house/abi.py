"""What programs are built against: functions, structs, enumerations and types of a commpool.h, and how two differ.

A program built against a kept header must run on today's library: so functions stay as they are, structs grow at their
end, enumerators keep their values; and whatever differs comes with a higher version.
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
        return self.functions, self.structs, self.enums, self.types

    def inner_structs(self):
        """Structs that lie in others, which could not grow without moving what follows."""
        fields = [field for struct in self.structs.values() for field in struct]
        return {name for name in self.structs if any(field.startswith(name + " ") for field in fields)}


def _struct_problems(kept, today):
    inner = kept.inner_structs()
    for name, fields in kept.structs.items():
        now = today.structs.get(name)
        if now is None:
            yield f"struct {name} is gone"
        elif now[:len(fields)] != fields:
            at = next(place for place, field in enumerate(fields) if now[place:place + 1] != [field])
            yield f"struct {name} has another field in place {at}: {now[at] if at < len(now) else 'none'}"
        elif name in inner and len(now) > len(fields):
            yield f"struct {name} lies in another struct, and has grown"


def compatibility_problems(kept, today):
    """Why a program that was built against `kept` may not run on a library of `today`."""
    for name, signature in kept.functions.items():
        if name not in today.functions:
            yield f"function {name} is gone"
        elif today.functions[name] != signature:
            yield f"function {name} has another signature: {today.functions[name]}"
    yield from _struct_problems(kept, today)
    for name, values in kept.enums.items():
        for enumerator, value in values.items():
            now = today.enums.get(name, {}).get(enumerator)
            if now != value:
                yield f"{enumerator} of {name} was {value} and is {now}"
    yield from (f"type `{declaration}` is gone, or another" for declaration in sorted(kept.types - today.types))


def problems(kept_headers, header):
    """Of today's header, beside those that are kept from earlier versions."""
    today = Abi(header)
    kept = sorted((Abi(text) for text in kept_headers), key=lambda abi: abi.version)
    found = [] if kept else ["no header is kept"]
    for older in kept:
        if older.version[0] == today.version[0]:
            name = ".".join(map(str, older.version))
            found += [f"{problem} (since {name})" for problem in compatibility_problems(older, today)]
    newest = kept[-1] if kept else today
    if newest.content() != today.content() and today.version <= newest.version:
        found.append("commpool.h differs from the one that is kept of its version: raise COMMPOOL_VERSION")
    if today.version < newest.version:
        found.append("COMMPOOL_VERSION has gone back")
    return found
