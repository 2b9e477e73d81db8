"""All variables that anything here reads stand in the tables of tools/reference.md, and nothing else does."""

import os
import pathlib
import re
import unittest

_ROOT = pathlib.Path(os.path.realpath("WORKSPACE")).parent
_IN_CPP = re.compile(r'(?:getenv|Variable)\("(COMMPOOL_[A-Z0-9_]+)"')
_READS = {
    "*.cc": _IN_CPP,
    "*.h": _IN_CPP,
    "*.py": re.compile(r'_VARIABLE = "(COMMPOOL_[A-Z0-9_]+)"'),
    "*.bzl": re.compile(r'variable = "(COMMPOOL_[A-Z0-9_]+)"'),
    "": re.compile(r"\$\{?!?(COMMPOOL_[A-Z0-9_]+)"),  # shell
}
_NAME = re.compile(r"`(COMMPOOL_[A-Z0-9_]+)`")


def read_variables():
    found = set()
    for folder in ("src", "tools", "tests", "examples"):
        for suffix, pattern in _READS.items():
            for file in (_ROOT / folder).rglob(suffix or "*"):
                shell = suffix or file.suffix in ("", ".sh")
                if file.is_file() and shell and "__pycache__" not in file.parts:
                    found |= set(pattern.findall(file.read_text(encoding="utf-8", errors="replace")))
    return found


def table_variables(text):
    rows = [line for line in text.splitlines() if line.startswith("| `COMMPOOL_")]
    return {name for row in rows for name in _NAME.findall(row.split("|")[1])}


class Variables(unittest.TestCase):
    def test_that_are_read_are_those_of_the_tables(self):
        text = (_ROOT / "tools/reference.md").read_text(encoding="utf-8")
        bazel_rule_sets = {name for name in table_variables(text) if name.startswith("COMMPOOL_BAZEL_")}
        self.assertEqual(table_variables(text) - bazel_rule_sets, read_variables())

    def test_that_the_library_takes_for_slips_are_none_of_these(self):
        source = (_ROOT / "src/library/base/environment.cc").read_text(encoding="utf-8")
        known = set(re.findall(r'"(COMMPOOL_[A-Z0-9_]*[A-Z0-9])"', source))
        named_alike = {name for name in read_variables() if name.endswith("_INCLUDE")}
        self.assertEqual(read_variables() - named_alike, known)

    def test_are_found_where_they_are_read(self):
        found = read_variables()
        for name in ("COMMPOOL_DRIVER", "COMMPOOL_LOG", "COMMPOOL_EMULATOR", "COMMPOOL_CUDA_INCLUDE", "COMMPOOL_CACHE"):
            self.assertIn(name, found)
