"""What a shared library gives to others and takes from them."""

import re
import subprocess

_DECLARATION = re.compile(r"^COMMPOOL_API\b[^;(]*?\b(commpool_\w+)\s*\(", re.MULTILINE)
# What the adapters of this repository read, under a version of its own: no header tells programs of it.
_OF_ADAPTERS = {"commpool_open_scopes"}
OF_ADAPTERS_BY_VERSION = {"COMMPOOL_PRIVATE": _OF_ADAPTERS}
_GPU_LIBRARY = re.compile(r"lib(cuda|cudart|nccl|nvidia-ml)\b")


def declared(header):
    """The functions that the text of a header exports."""
    return set(_DECLARATION.findall(header))


def exported(nm_output):
    """The symbols that `nm --dynamic --defined-only` lists, without local ones."""
    entries = (line.split() for line in nm_output.splitlines() if line.strip())
    return {entry[-1].split("@")[0] for entry in entries if entry[-2] != "A" and entry[-2].isupper()}


def versions(nm_output):
    """Symbol -> the version that `nm` lists it under; "" for none."""
    entries = (line.split() for line in nm_output.splitlines() if line.strip())
    return {name: version for name, _, version in (entry[-1].partition("@@") for entry in entries)}


def version_problems(versions_of, functions_by_version):
    """Functions that are not under the version in which they came: a program of that version would not load."""
    for version, functions in sorted(functions_by_version.items()):
        for name in sorted(functions):
            found = versions_of.get(name, "")
            if found != version:
                yield f"{name} is exported as of `{found}`, and came with {version}"


def shared_name(readelf_output):
    """What programs that are linked with the library load."""
    return "".join(re.findall(r"\(SONAME\).*\[(.*)\]", readelf_output))


def needed(readelf_output):
    """The libraries that `readelf --dynamic` says it is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf_output))


def problems(symbols, libraries, functions):
    found = [f"{name} is exported, and no function of commpool.h"
             for name in sorted(symbols - functions - _OF_ADAPTERS)]
    found += [f"{name} is declared in commpool.h and not exported" for name in sorted(functions - symbols)]
    linked = sorted(filter(_GPU_LIBRARY.match, libraries))
    found += [f"{name} is linked, and has to be opened at run time" for name in linked]
    return found


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
