"""Asks binutils what a library or program needs from the system, and what it contains."""

import os
import platform
import re
import subprocess

# The oldest system that everything shipped loads on: glibc 2.28 and the libstdc++ of GCC 8 (RHEL 8).
OLDEST = {"GLIBC": "2.28", "GLIBCXX": "3.4.25", "CXXABI": "1.3.11", "GCC": "7.0.0"}
LIBRARY_BYTES = 1_900_000

# Libraries of glibc 2.28 beside libc.so.6 that programs use. Before 2.30 glibc looks for a symbol only in the file that
# it was linked from.
_ELSEWHERE = {
    "libdl.so.2": re.compile(r"dl(?:addr1?|close|error|info|mopen|open|sym|vsym)$"),
    "libpthread.so.0": re.compile(r"sem_\w+$|(?:__)?pthread_(?:atfork|cancel|create|detach|join|key_\w+|kill|once|"
                                  r"rwlock_\w+|getspecific|setspecific|setname_np|sigmask|spin_\w+)$"),
}
_SYMBOL = re.compile(r"UND (\w+)@\w[\w.]* \((\d+)\)$", re.MULTILINE)
_FILE = re.compile(r"File: (\S+)|Name: \S+ +Flags: \S.*? Version: (\d+)$", re.MULTILINE)

_NODE = re.compile(r"\*UND\*.*\(?\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\)?")


_MACHINES = {62: "x86_64", 183: "aarch64"}  # of ELF's header


def machine(file):
    """Whose instructions the file has: "x86_64"."""
    with open(file, "rb") as opened:
        return _MACHINES[int.from_bytes(opened.read(20)[18:], "little")]


def tool(name, file):
    """The program of binutils that takes the file: of another machine's files the cross compiler's."""
    return name if machine(file) == platform.machine() else f"{machine(file)}-linux-gnu-{name}"


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


def _objdump(option, file):
    return subprocess.run([tool("objdump", file), option, str(file)], check=True, capture_output=True, text=True).stdout


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
    """One line for each version node where the file needs a newer version than the oldest system has."""
    limits = oldest or OLDEST
    return [f"{os.path.basename(file)} needs {node}_{version}, newer than {node}_{limits[node]}"
            for node, version in sorted(newest_versions(file).items()) if _numbers(version) > _numbers(limits[node])]


def _readelf(option, file):
    return subprocess.run(["readelf", "--wide", option, str(file)], check=True, capture_output=True, text=True).stdout


def files_of_symbols(file):
    """Symbol -> the library in which the loader looks for it: {"dlopen": "libdl.so.2"}."""
    libraries, library = {}, None
    for named, version in _FILE.findall(_readelf("--version-info", file)):
        if named:
            library = named
        else:
            libraries[version] = library
    return {name: libraries[version] for name, version in _SYMBOL.findall(_readelf("--dyn-syms", file))
            if version in libraries}


def misplaced(file):
    """One line for each symbol that lies in another library on the oldest system."""
    return [f"{os.path.basename(file)} looks for {name} in {library}, and glibc {OLDEST['GLIBC']} has it in {home}"
            for name, library in sorted(files_of_symbols(file).items())
            for home, names in _ELSEWHERE.items() if library != home and names.match(name)]


def soname(file):
    """The name by which programs load a library."""
    match = re.search(r"SONAME\s+(\S+)", _objdump("-p", file))
    if not match:
        raise ValueError(f"{file} has no SONAME")
    return match.group(1)


def needed(file):
    """The libraries that the system must find before the file can start."""
    return re.findall(r"NEEDED\s+(\S+)", _objdump("-p", file))


def runpath(file):
    match = re.search(r"(?:RUNPATH|RPATH)\s+(\S+)", _objdump("-p", file))
    return match.group(1) if match else ""
