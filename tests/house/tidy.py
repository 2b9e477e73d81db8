"""The rules of the house that a program can check: sizes, guards, words, entries of the top level."""

import pathlib
import re

import count_code
import functions
import tree

TOP_LEVEL = {
    ".bazelrc", ".ci", ".clang-format", ".gitignore", "BUILD", "LICENSE", "README.md", "WORKSPACE", "docs", "examples",
    "include", "src", "tests", "tools"
}
MUST_EXIST = ["README.md", "LICENSE", "src/README.md", "src/library/README.md", "src/library/reference.md",
              "tests/README.md", "tools/README.md"]
LINES_OF_A_FILE = 500
LINES_OF_A_FUNCTION = 69
LINES_OF_A_README = 85  # more is for reference.md beside it
COLUMNS = 120

_SCRIPTS = {".py", ".sh", ".bzl"}
# Written in pieces, so that this file may be checked too.
_FORBIDDEN_WORD = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
_PLACE_OF_SOMEBODY = re.compile(r"(?:^|[\s\"'=(`:])/(?:work|home|root|mnt|Users)\b|\.\./" + "shared", re.MULTILINE)
_REGISTRY = re.compile(r"\b(?:pypi|pythonhosted|debian|ubuntu)\.(?:org|com|net)\b")
_MEASURE = {
    "c++": functions.cpp_functions,
    "python": functions.python_functions,
    "script": functions.shell_functions,
    "build": lambda text: [],
}


def _language(path, text):
    if path.suffix in tree.CODE:
        return "c++"
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        return "python"
    if path.suffix in _SCRIPTS or text.startswith("#!/bin/bash"):
        return "script"
    return "build" if path.name == "BUILD" or path.suffix == ".BUILD" else ""


def _sizes(path, text, language):
    lines = text.splitlines()
    # A public header is also a page: comments do not count there.
    counted = len(lines) if path.parts[0] != "include" else count_code.lines_of(path, lambda: text)
    if counted > LINES_OF_A_FILE:
        yield f"{path}: {counted} lines, over {LINES_OF_A_FILE}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, over {COLUMNS}"
    for name, length in _MEASURE[language](text):
        if length > LINES_OF_A_FUNCTION:
            yield f"{path}: {name} has {length} lines, over {LINES_OF_A_FUNCTION}"


def _page(path, text):
    lines = len(text.splitlines())
    if path.name == "README.md" and lines > LINES_OF_A_README:
        yield f"{path}: {lines} lines, over {LINES_OF_A_README} of a page to begin with"


def _guard(path, text):
    """A public header has COMMPOOL_ and its path below include/commpool, for any C compiler; others `#pragma once`."""
    inner = re.sub(r"^include/commpool/", "", str(path))
    name = "COMMPOOL_" + re.sub(r"\W", "_", inner).upper() + "_"
    expected = "#pragma once" if inner == str(path) else f"#ifndef {name}\n#define {name}"
    if path.suffix == ".h" and expected + "\n" not in text:
        yield f"{path}: has no {expected.splitlines()[0]}"


def _words(path, text):
    for pattern, what in [(_FORBIDDEN_WORD, "a word that asks for later work"),
                          (_PLACE_OF_SOMEBODY, "a place outside of the repository"),
                          (_REGISTRY, "the host of a registry")]:
        for match in pattern.finditer(text):
            number = text.count("\n", 0, match.end()) + 1
            yield f"{path}:{number}: {what}: {match.group(0).strip()}"


def _entries(root):
    for entry in sorted(pathlib.Path(root).iterdir()):
        if tree.is_ours(entry.name) and entry.name not in TOP_LEVEL:
            yield f"{entry.name}: no entry of the top level"
    for path in MUST_EXIST:
        if not pathlib.Path(root, path).exists():
            yield f"{path}: is missing"


def problems(root):
    found = list(_entries(root))
    for path in tree.files(root):
        text = tree.read(root, path)
        if text is None:
            continue
        if path.name != "LICENSE":
            found += _words(path, text)
        found += _page(path, text)
        language = _language(path, text)
        if language:
            found += _sizes(path, text, language)
        if language == "c++":
            found += _guard(path, text)
    return found
