"""A backing is known to its own files and to one line of the list of backings: nothing else in C++ of src or
tools tells them apart."""

import pathlib
import re

import tree

LIST = pathlib.Path("src/library/backing/backings.inc")
# What a pool has where nobody says, and what the default pool falls back to on a device without virtual memory.
DEFAULTS = {"src/library/backing/backing.h", "src/library/pool/runtime.cc"}
_LINE = re.compile(r"^COMMPOOL_BACKING\((\w+), (\w+)\)$", re.MULTILINE)


def listed(text):
    """(name, number) of each backing in the text of the list."""
    return _LINE.findall(text)


def _patterns(name, number):
    """How a source of src, and one of tools, would name a backing; tools may compare backings, but list none."""
    word = re.escape(name.lower())
    return {
        "src": re.compile(rf"\bBackingKind::k{name}\b|\bk{name}Backing\b|\bCOMMPOOL_BACKING_{number}\b"
                          rf"|^(?!\s*//)[^\n]*\"[^\"\n]*\b{word} backing\b", re.MULTILINE),
        "tools": re.compile(rf"\"{word}\"\s*,\s*(?:\w+::)*k{name}\b"),
    }


def problems(root):
    """One line for each place that names a backing and need not."""
    file = pathlib.Path(root, LIST)
    backings = listed(file.read_text(encoding="utf-8")) if file.exists() else []
    found = [] if backings else [f"{LIST}: lists no backing"]
    for path in tree.files(root):
        folder = path.parts[0]
        if path.suffix not in tree.CODE or folder not in ("src", "tools") or str(path) in DEFAULTS:
            continue
        text = tree.read(root, path) or ""
        for name, number in backings:
            if str(path.parent) == "src/library/backing" and path.stem.startswith(name.lower() + "_"):
                continue
            for match in _patterns(name, number)[folder].finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path}:{line}: {' '.join(match.group(0).split())}: only {LIST} and the backing's own "
                             "file know it")
    return found
