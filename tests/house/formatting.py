"""Whether sources are as clang-format writes them, by the repository's .clang-format."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import tree

# Other versions lay some lines out differently.
VERSION = 14
PROGRAMS = [f"clang-format-{VERSION}", "clang-format"]
_SUFFIXES = tree.CODE | {".c"}
_FILES_OF_A_RUN = 50
_FINDING = re.compile(r"^(.+?:\d+):\d+: error: ", re.MULTILINE)


def program():
    """The formatter's path; None where there is none of this version."""
    for path in filter(None, map(shutil.which, PROGRAMS)):
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        if f"version {VERSION}." in answer:
            return path
    return None


def sources(root):
    return [path for path in tree.files(root) if path.suffix in _SUFFIXES]


def problems(root):
    """Each line that clang-format would change; `clang-format -i FILE` mends it."""
    paths = [str(path) for path in sources(root)]

    def check(first):
        command = [program(), "--dry-run", "--Werror", "--style=file", *paths[first:first + _FILES_OF_A_RUN]]
        run = subprocess.run(command, cwd=pathlib.Path(root), capture_output=True, text=True, check=False)
        places = dict.fromkeys(_FINDING.findall(run.stderr))  # a line is reported once for each change
        found = [f"{place}: clang-format writes this otherwise" for place in places]
        return found if found or not run.returncode else [run.stderr.strip()]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        return [line for found in threads.map(check, range(0, len(paths), _FILES_OF_A_RUN)) for line in found]
