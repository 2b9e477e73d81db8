"""Names and numbers that pages repeat from the sources: each is what the sources say today."""

import pathlib
import re

import tree

_NAME = re.compile(r"\b(?:COMMPOOL_[A-Z][A-Z_]*[A-Z]|commpool_[a-z_]*[a-z])\b")
_BEGINNING = 30  # letters of a program, as tests name it
_TARGET = re.compile(r"\]\([^)]*\)")
_CODE = {".h", ".cc", ".inc", ".cu", ".c", ".py", ".sh", ".bzl", ".lds", ".in", "", ".pyi"}
# A page, its words around a number, and a source with its words around the same number.
NUMBERS = (
    ("include/commpool/reference.md", r"`COMMPOOL_(\d+\.\d+)`",
     "src/library/c_api/exports.lds", r"COMMPOOL_(\d+\.\d+) \{"),
    ("README.md", r"glibc (2\.\d+)", "tools/packaging/portability.py", r'OLDEST = ..GLIBC": "(2\.\d+)"'),
    ("src/python/README.md", r"glibc (2\.\d+)", "tools/packaging/portability.py", r'OLDEST = ..GLIBC": "(2\.\d+)"'),
)


def unknown_names(root):
    """Names of ours in pages that no source has."""
    known, pages = set(), {}
    for path in tree.files(root):
        text = tree.read(root, path) if path.suffix in _CODE | {".md"} else None
        if text is None:
            continue
        names = set(_NAME.findall(_TARGET.sub("", text)))
        if path.suffix == ".md":
            pages[path] = names
        else:
            known |= names
    return [f"{path}: nothing is called {name}" for path, names in pages.items() for name in sorted(names - known)
            if not any(other.startswith(name) for other in known)]  # `commpool_import_*`


def unrun_programs(root):
    """Python programs of pages whose beginning no test has: one runs each as it stands. Command lines of users' pages
    are run by tests/install/pages_test.py, programs in C by outside_projects_test.py.
    """
    tests = "".join(tree.read(root, path) or "" for path in tree.files(root)
                    if path.parts[0] == "tests" and path.suffix == ".py")
    firsts = [(path, first) for path in tree.files(root) if path.suffix == ".md"
              for first in re.findall(r"^```python\n(.*?)(?:  .*)?$", tree.read(root, path), re.MULTILINE)]
    return [f"{path}: no test runs the program that begins with {first}" for path, first in firsts
            if first[:_BEGINNING] not in tests]


def other_numbers(root, numbers=NUMBERS):
    """Numbers of pages that the source has otherwise."""
    found = []
    for page, words, source, line in numbers:
        said = set(re.findall(words, pathlib.Path(root, page).read_text(encoding="utf-8")))
        [meant] = set(re.findall(line, pathlib.Path(root, source).read_text(encoding="utf-8")))
        found += [f"{page}: {number} is {meant} in {source}" for number in said - {meant}]
    return found
