"""The files of the repository, as the tests of the house see them."""

import os
import pathlib

# What builds and tools leave behind; .gitignore names the same.
_NOT_OURS = {".git", ".bundle", ".cache", "__pycache__"}
CODE = {".h", ".cc", ".inc", ".cu"}


def workspace():
    """The checkout that this test was built from: its WORKSPACE is among the test's data, as a link."""
    return pathlib.Path(os.path.realpath("WORKSPACE")).parent


def is_ours(name):
    return name not in _NOT_OURS and not name.startswith("bazel-")


def files(root):
    """Paths relative to the root, in order."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if is_ours(name))
        found += [pathlib.Path(folder, name).relative_to(root) for name in names if is_ours(name)]
    return sorted(found)


def read(root, path):
    """The text of a file; None for one that is not text."""
    try:
        return pathlib.Path(root, path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
