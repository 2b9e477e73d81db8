#!/usr/bin/env python3
"""Counts the library: code lines by folder, the share of comments, the files that a change of each kind touches.

usage: count_code.py [--root DIR] [--files]
  --root DIR   another checkout, to compare with; default: the one that this file is of
  --files      names the files that each kind of change touches

A code line is not blank and holds more than a comment; a Python docstring is a comment. What a change touches is told
by one that was made: the files of src, include and tools whose code names it. Documents and results do not count.
"""

import argparse
import collections
import io
import pathlib
import re
import tokenize

import functions
import tree

_COUNTED = {".h", ".cc", ".c", ".inc", ".py"}
_TOUCHED = {"src", "include", "tools"}
_BUILD = {".bzl", ".lds", ".sh"}  # besides BUILD itself: touched, and no code
_LIBRARY = "src/library"

# A kind of change -> its example, and how code names that.
EXAMPLES = {
    "a backing": ("user", r"\bCOMMPOOL_BACKING_USER\b|\bBackingKind::kUser\b|\bk?UserBacking\b|\buser_backing\b"
                          r"|\bCOMMPOOL_BACKING\(User\b|\"user\"|\buser_allocate\b"),
    "a statistic": ("held_bytes", r"\bheld_bytes\b"),
    "an option": ("granularity", r"\bgranularity_bytes\b|\bCOMMPOOL_OPTION_GRANULARITY\b|\bgranularity: Optional\b"),
    "a field of the wire": ("memory_left", r"\bmemory_left\b"),
    "a subcommand": ("advise", r"\bAddAdvise\b|\badvise\.(?:cc|h)\b|\"advise\"|\bcommpool advise\b"),
}


def _without_c_comments(text):
    """The same lines, comments blanked, strings as they are."""
    return functions.NOISE.sub(
        lambda match: functions.blank(match) if match.group(0)[:2] in ("//", "/*") else match.group(0), text)


def _without_python_comments(text):
    lines = text.splitlines()
    begins = True  # a string that begins a statement is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            first, last = token.start[0] - 1, token.end[0] - 1
            tail = lines[last][token.end[1]:]
            lines[first] = lines[first][:token.start[1]] + (tail if first == last else "")
            lines[first + 1:last + 1] = [""] * (last - first)
        elif token.type not in (tokenize.NL, tokenize.ENDMARKER):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return "\n".join(lines)


def code_of(path, text):
    """The text without what is a comment in its language."""
    if path.suffix == ".py":
        return _without_python_comments(text)
    return _without_c_comments(text) if path.suffix in _COUNTED else text


def _lines(text):
    return sum(1 for line in text.splitlines() if line.strip())


def lines_of(path, read):
    """How many lines of code a file has; `read` gives its text. 0 for what is no code."""
    return _lines(code_of(path, read())) if path.suffix in _COUNTED else 0


class Count:
    """What a checkout has."""

    def __init__(self, root):
        self.code = collections.Counter()  # by folder of src, and of the library in it
        self.comments = 0
        self.touched = {kind: [] for kind in EXAMPLES}
        for path in tree.files(root):
            if path.parts[0] in _TOUCHED and (path.suffix in _COUNTED | _BUILD or path.name == "BUILD"):
                self._add(path, tree.read(root, path))

    def _add(self, path, text):
        code = code_of(path, text)
        for kind, (_, pattern) in EXAMPLES.items():
            if re.search(pattern, code):
                self.touched[kind].append(path)
        if path.parts[0] == "src" and path.suffix in _COUNTED:
            house = "/".join(path.parts[:2])
            self.code["/".join(path.parts[:3]) if house == _LIBRARY else house] += _lines(code)
            self.comments += _lines(text) - _lines(code)

    def library(self):
        return sum(lines for folder, lines in self.code.items() if folder.startswith(_LIBRARY))

    def report(self, files=False):
        total = sum(self.code.values())
        lines = [f"{lines:6} {folder}" for folder, lines in sorted(self.code.items())]
        lines += [f"{self.library():6} {_LIBRARY}", f"{total:6} src",
                  f"{100 * self.comments / max(1, total + self.comments):6.1f} % of the lines are comments", ""]
        for kind, paths in self.touched.items():
            lines.append(f"{len(paths):6} files name {kind}: {EXAMPLES[kind][0]}")
            lines += [f"         {path}" for path in paths if files]
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--files", action="store_true")
    arguments = parser.parse_args()
    print(Count(arguments.root).report(arguments.files))


if __name__ == "__main__":
    main()
