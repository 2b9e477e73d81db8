"""The package agrees with commpool.h: every name, and, as a compiler sees them, every size and offset."""

import ctypes
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import emulated
import commpool
from commpool import _abi, _library

_HEADERS = os.path.join(emulated.REPOSITORY, "include")
_INCLUDES = "".join(f"#include <commpool/{name}.h>\n" for name in ("kept", "record", "registrar", "share"))
_SCALARS = {ctypes.c_size_t: "size_t", ctypes.c_int: "int", ctypes.c_uint64: "uint64_t", ctypes.c_double: "double"}


def header(path="include/commpool/c_headers.h"):
    text = pathlib.Path(emulated.REPOSITORY, path).read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def enumerations(text):
    """{"commpool_mode": {"FIXED": 0, ...}}, from the header's text."""
    return {name: {word: int(number) for word, number in re.findall(r"COMMPOOL_(\w+) = (\d+)", body)}
            for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", text, re.DOTALL)}


class Names(unittest.TestCase):
    maxDiff = None

    def check_functions(self, text, bound):
        declared = {name: "".join(arguments.split())
                    for name, arguments in re.findall(r"COMMPOOL_API[^;]*?\b(commpool_\w+)\(([^;]*)\);", text)}
        self.assertEqual(sorted(bound), sorted(declared))
        for name, (_, arguments) in bound.items():
            expected = 0 if declared[name] in ("", "void") else declared[name].count(",") + 1
            self.assertEqual(len(arguments), expected, name)

    def test_of_functions_are_the_headers(self):
        self.check_functions(header(), _abi.FUNCTIONS)
        self.assertLessEqual(_library.QUICK, set(_abi.FUNCTIONS))

    def test_of_the_router_s_functions_are_its_header_s(self):
        self.check_functions(header("src/torch/surface.h"), _abi.ROUTER_FUNCTIONS)

    def test_of_enumerators_are_the_headers(self):
        found = enumerations(header())
        self.assertEqual({word.name: int(word) for word in commpool.StatusCode}, found.pop("commpool_status"))
        short = {}
        for name, words in found.items():
            kind = re.sub("(block|device)_(state|work|bound)", r"\1", name.replace("commpool_", ""))
            prefix = kind.upper() + "_"
            short[name] = {word.replace(prefix, "").lower(): number for word, number in words.items()}
        self.assertEqual(_abi.WORDS, short)

    def test_of_structs_and_fields_are_the_headers(self):
        field = re.compile(r"(?:\(\*(\w+)\)\([^;]*\)|\b(\w+));")
        declared = {name: [pointer or plain for pointer, plain in field.findall(body)]
                    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", header(), re.DOTALL)}
        self.assertEqual({name: [field[0] for field in struct._fields_] for name, struct in _abi.STRUCTS.items()},
                         declared)

    def test_the_version_is_the_headers(self):
        found = dict(re.findall(r"#define COMMPOOL_VERSION_(\w+) (\d+)", header()))
        self.assertEqual(found, {"MAJOR": str(_abi.MAJOR), "MINOR": str(_abi.MINOR), "PATCH": str(_abi.PATCH)})


class Pools(unittest.TestCase):
    """Pool has every call of the C++ skin."""

    # A constructor, a class method, and the object itself, which stands for the handle.
    _OTHERWISE = {"create": "__init__", "default_pool": "default"}

    @staticmethod
    def of_the_skin():
        text = pathlib.Path(_HEADERS, "commpool/pool.h").read_text(encoding="utf-8")
        body = re.search(r"\nclass Pool \{\n public:\n(.*?)\n private:", text, re.DOTALL).group(1)
        return re.findall(r"^  (?:static )?[\w:]+(?:<[^;{}]*?>)? (\w+)\(", body, re.MULTILINE)

    def test_have_the_calls_of_the_skin(self):
        calls = self.of_the_skin()
        self.assertGreater(len(calls), 20)
        self.assertLessEqual({"create", "allocate", "reserve", "sleep", "stats", "abandon"}, set(calls))
        missing = [call for call in calls if not hasattr(commpool.Pool, self._OTHERWISE.get(call, call))]
        self.assertEqual(missing, [])


class Layout(unittest.TestCase):
    def test_is_what_a_compiler_makes_of_the_header(self):
        lines = [_INCLUDES]
        for name, struct in _abi.STRUCTS.items():
            lines.append(f"_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, \"{name}\");")
            for field in struct._fields_:
                offset = getattr(struct, field[0]).offset
                lines.append(f"_Static_assert(offsetof({name}, {field[0]}) == {offset}, \"{name}.{field[0]}\");")
                enumerations = (r"addresses|backing|location|frees|grants|mode|moves|streams|replays|filter|exhaust|"
                                r"state|keep|kept|graphs|stacks")
                if field[1] in _SCALARS and not re.match(enumerations, field[0]):
                    lines.append(f"_Static_assert(_Generic((({name}*)0)->{field[0]}, {_SCALARS[field[1]]}: 1, "
                                 f"default: 0), \"the type of {name}.{field[0]}\");")
        result = self.compile(lines)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_of_a_planted_mistake_is_found(self):
        result = self.compile(["#include <commpool/commpool.h>",
                               "_Static_assert(offsetof(commpool_block, bytes) == 4, \"planted\");"])
        self.assertIn("planted", result.stderr)

    def compile(self, lines):
        command = ["gcc", "-std=c11", "-Werror", "-fsyntax-only", f"-I{_HEADERS}", "-x", "c", "-"]
        return subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)

    def test_of_defaults_is_that_of_the_inits(self):
        from commpool import options

        program = _INCLUDES + """#include <stdio.h>
int main(void) {
  commpool_pool_options p; commpool_pool_options_init(&p); p.name = 0; fwrite(&p, sizeof(p), 1, stdout);
  commpool_scope_options s; commpool_scope_options_init(&s); fwrite(&s, sizeof(s), 1, stdout);
  commpool_sleep_options k; commpool_sleep_options_init(&k); fwrite(&k, sizeof(k), 1, stdout);
  commpool_import_options i; commpool_import_options_init(&i); fwrite(&i, sizeof(i), 1, stdout);
}
"""
        with tempfile.TemporaryDirectory() as folder:
            binary = os.path.join(folder, "defaults")
            # The test never runs the functions that the header's inline part calls.
            subprocess.run(["gcc", "-O1", f"-I{_HEADERS}", "-x", "c", "-", "-o", binary], input=program, text=True,
                           check=True)
            expected = subprocess.run([binary], capture_output=True, check=True).stdout
        pool = _abi.CPoolOptions()
        pool.name = None
        self.assertEqual(bytes(pool) + bytes(options.scope_options("thread", "error", 0, None)) +
                         bytes(_abi.CSleepOptions()) + bytes(_abi.CImportOptions()), expected)
