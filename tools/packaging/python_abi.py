#!/usr/bin/env python3
"""Writes what C headers declare as a module of Python: versions, enumerations, structs and functions for ctypes.

usage: python_abi.py COMMPOOL_H INLINE_H SURFACE_H > _abi.py

COMMPOOL_H may hold commpool.h and headers of capabilities beside it.

The build makes `commpool._abi` so. A struct with an init function is made as that one sets it. One that the library
fills has a class of values beside it, of the same fields, with what the header says of each. SURFACE_H is that of
PyTorch's router.
"""

import os.path
import pathlib
import re
import sys

_HEAD = '''"""The C ABI as ctypes knows it; made of commpool.h by tools/packaging/python_abi.py."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
from typing import Any, Literal, NamedTuple
'''
_DECLARATION = re.compile(
    r"typedef enum (?P<enum>\w+) \{(?P<words>.*?)\}"
    r"|typedef struct (?P<struct>\w+) \{(?P<fields>.*?)\} (?P=struct);"
    r"|typedef (?P<result>[\w *]+)\(\*(?P<callback>\w+)\)\((?P<values>[^;]*)\);"
    r"|typedef uint64_t (?P<handle>\w+);"
    r"|COMMPOOL_API (?P<answer>[\w *]+?)(?P<function>commpool_\w+)\((?P<parameters>[^;]*)\);", re.DOTALL)
_INIT = re.compile(r"\bcommpool_(?P<struct>\w+)_init\([^)]*\) \{(?P<body>.*?)\n\}", re.DOTALL)
_DEFAULTS = {"UINT64_MAX": "2**64 - 1"}
_CALLBACK_FIELD = re.compile(r"(.*)\(\*(\w+)\)\((.*)\)", re.DOTALL)
_ROUTER = "commpool_torch_"  # prefix of SURFACE_H's functions
_NAME = re.compile(r"\w+$")
_SAID = re.compile(r"(\w+); +/\* (.*?) \*/")  # a field's comment, at the end of its line
_SCALARS = {"size_t": "ctypes.c_size_t", "ptrdiff_t": "ctypes.c_ssize_t", "int": "ctypes.c_int",
            "uint64_t": "ctypes.c_uint64", "double": "ctypes.c_double"}
# Structs that the library fills, and how Python shows them.
_VALUES = {"commpool_counter": "NamedTuple", "commpool_statistics": "", "commpool_block": "NamedTuple",
           "commpool_setting": "NamedTuple"}


def camel(name):
    """`PoolOptions` of commpool_pool_options."""
    return "".join(word.capitalize() for word in name.replace("commpool_", "").split("_"))


class Module:
    """The text of the module, declaration by declaration: each uses those before it."""

    def __init__(self, header, inline, surface):
        self.lines = [_HEAD]
        self.inits = {f"commpool_{found['struct']}": re.findall(r"->(\w+) = ([^;]+);", found["body"])
                      for found in _INIT.finditer(inline + header)}
        self.enums, self.types, self.callbacks, self.values = {}, dict(_SCALARS), set(), {}
        self.numbers = {name: int(number) for name, number in
                        re.findall(r"#define (COMMPOOL_\w+) \(?(-?\d+)\)?", header)}
        self.structs, self.functions = {}, {}
        self.said = {name: dict(_SAID.findall(fields)) for name, fields in re.findall(
            r"typedef struct (\w+) \{(.*?)\n\} \1;", header, flags=re.DOTALL)}
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header + surface, flags=re.DOTALL)
        version = dict(re.findall(r"#define COMMPOOL_VERSION_(\w+) (\d+)", text))
        self.lines.append("MAJOR, MINOR, PATCH = {MAJOR}, {MINOR}, {PATCH}".format(**version))
        self.lines.append("VERSION = MAJOR * 10000 + MINOR * 100 + PATCH")
        for found in _DECLARATION.finditer(text):
            self._add(found)
        self._table("WORDS: dict[str, dict[str, int]]", {name: repr(words) for name, words in self.enums.items()})
        self._table("STRUCTS: dict[str, type[ctypes.Structure]]", self.structs)
        for table, of_router in (("FUNCTIONS", False), ("ROUTER_FUNCTIONS", True)):
            self._table(f"{table}: dict[str, tuple[Any, list[Any]]]", {
                name: of for name, of in self.functions.items() if name.startswith(_ROUTER) == of_router})

    def _add(self, found):
        if found["enum"]:
            self._add_enum(found["enum"], {word: int(number) for word, number in
                                           re.findall(r"(\w+) = (\d+)", found["words"])})
        elif found["struct"]:
            self._add_struct(found["struct"], [field.strip() for field in found["fields"].split(";") if field.strip()])
        elif found["callback"]:
            self._add_callback(found["callback"], found["result"], found["values"])
        elif found["handle"]:
            self.types[found["handle"]] = "ctypes.c_uint64"
        else:
            self.functions[found["function"]] = (f"({self._type(found['answer'])}, "
                                                 f"[{self._listed(found['parameters'])}])")

    def _add_enum(self, name, words):
        self.types[name] = "ctypes.c_int"
        self.numbers.update(words)
        prefix = os.path.commonprefix(list(words)).rpartition("_")[0] + "_"
        words = {word[len(prefix):]: number for word, number in words.items()}
        if name == "commpool_status":
            self._class("StatusCode(enum.IntEnum)", "What kind of failure it was.", [
                f"{word} = {number}" for word, number in words.items()])
            return
        self.enums[name] = {word.lower(): number for word, number in words.items()}
        self.lines.append(f"{camel(name)}Word = Literal{list(self.enums[name])}")

    def _add_struct(self, name, declared):
        fields = [self._field(field) for field in declared]
        kind = f"C{camel(name)}"
        if name in _VALUES:
            self._add_value(name, fields[fields[0][0] == "struct_bytes":])
        lines = ["_fields_ = [", *(f"    ({field!r}, {of})," for field, of, _ in fields), "]"]
        if name in self.inits:
            lines += ["", "def __init__(self) -> None:", "    super().__init__(", *(
                f"        {field}={self._default(value)}," for field, value in self.inits[name]), "    )"]
        self._class(f"{kind}(ctypes.Structure)", name, lines)
        self.types[name] = self.structs[name] = kind

    def _default(self, value):
        """Python's form of a value in C."""
        return ("ctypes.sizeof(self)" if value.startswith("sizeof(") else f"b{value}" if value.startswith('"') else
                _DEFAULTS.get(value, self.numbers.get(value, value)))

    def _field(self, declared):
        """A field's name, its type in ctypes, and the type of its value."""
        callback = _CALLBACK_FIELD.fullmatch(declared)
        if callback:
            self._add_callback(callback[2], callback[1], callback[3])
            return callback[2], camel(callback[2]), "Any"
        of, base = self._type(declared), self._base(declared)
        value = {"ctypes.c_char_p": "str", "ctypes.c_double": "float"}.get(of, self.values.get(base, "int"))
        return _NAME.search(declared)[0], of, "str" if base in self.enums else value

    def _add_value(self, name, fields):
        of, said = _VALUES[name], self.said[name]
        listed = [f"  {field}: {said[field]}." for field, _, _ in fields if field in said]
        lines = [line for field, _, value in fields for line in (
            f"{field}: {value}", *([f'"""{said[field][0].upper()}{said[field][1:]}."""'] if field in said else []))]
        self._class(camel(name) + (f"({of})" if of else ""), "\n    ".join(
            [f"{name} of commpool.h.", "", "Attributes:", *listed, ""]), lines,
            [] if of else ["@dataclasses.dataclass(frozen=True)"])
        self.values[name] = camel(name)

    def _add_callback(self, name, result, values):
        self.lines.append(f"{camel(name)} = ctypes.CFUNCTYPE({self._type(result)}, {self._listed(values)})")
        self.types[name] = camel(name)
        self.callbacks.add(name)

    def _listed(self, parameters):
        return "" if parameters.strip() in ("", "void") else ", ".join(map(self._type, parameters.split(",")))

    @staticmethod
    def _base(declared):
        return next(word for word in re.findall(r"\w+", declared) if word not in ("const", "struct"))

    def _type(self, declared):
        """Of a declaration, whether it has a name or none: "const int* peers"."""
        base, stars = self._base(declared), declared.count("*")
        if stars == 0:
            return self.types.get(base, "None")
        known = "ctypes.c_void_p" if base in self.callbacks else self.types.get(base)
        if known is None:  # Python knows only the address
            known, stars = "ctypes.c_char_p" if "const char" in declared else "ctypes.c_void_p", stars - 1
        return "ctypes.POINTER(" * stars + known + ")" * stars

    def _class(self, head, says, lines, decorators=()):
        self.lines += ["", "", *decorators, f"class {head}:", f'    """{says}"""', "",
                       *(f"    {line}".rstrip() for line in lines), "", ""]

    def _table(self, name, entries):
        self.lines += [f"{name} = {{", *(f"    {key!r}: {value}," for key, value in entries.items()), "}"]

    def text(self):
        return re.sub(r"\n{4,}", "\n\n\n", re.sub(r" +\n", "\n", "\n".join(self.lines) + "\n"))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(Module(*(pathlib.Path(header).read_text(encoding="utf-8") for header in sys.argv[1:])).text(), end="")


if __name__ == "__main__":
    main()
