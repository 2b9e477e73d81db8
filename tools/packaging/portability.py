"""What a library or program asks of the system that loads it, and how much of its own it has: measured with objdump."""

import os
import re
import subprocess

# The oldest system that everything shipped loads on: glibc 2.28 and the libstdc++ of GCC 8 (RHEL 8).
OLDEST = {"GLIBC": "2.28", "GLIBCXX": "3.4.25", "CXXABI": "1.3.11", "GCC": "7.0.0"}
LIBRARY_BYTES = 1_500_000

_NODE = re.compile(r"\*UND\*.*\(?\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\)?")


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


def _objdump(option, file):
    return subprocess.run(["objdump", option, str(file)], check=True, capture_output=True, text=True).stdout


def newest_versions(file):
    """Version node -> the newest version that an undefined symbol asks for: {"GLIBC": "2.17"}."""
    newest = {}
    for line in _objdump("-T", file).splitlines():
        match = _NODE.search(line)
        if match:
            node, version = match.groups()
            newest[node] = max(newest.get(node, version), version, key=_numbers)
    return newest


def too_new(file, oldest=None):
    """One line for each version node of which the file asks for more than the oldest system has."""
    limits = oldest or OLDEST
    return [f"{os.path.basename(file)} needs {node}_{version}, newer than {node}_{limits[node]}"
            for node, version in sorted(newest_versions(file).items()) if _numbers(version) > _numbers(limits[node])]


def soname(file):
    """The name that programs load a library by."""
    match = re.search(r"SONAME\s+(\S+)", _objdump("-p", file))
    if not match:
        raise ValueError(f"{file} has no SONAME")
    return match.group(1)


def runpath(file):
    match = re.search(r"(?:RUNPATH|RPATH)\s+(\S+)", _objdump("-p", file))
    return match.group(1) if match else ""
