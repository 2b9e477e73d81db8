"""What a shared library gives to others and takes from them."""

import re
import subprocess

_DECLARATION = re.compile(r"^COMMPOOL_API\b[^;(]*?\b(commpool_\w+)\s*\(", re.MULTILINE)
_GPU_LIBRARY = re.compile(r"lib(cuda|cudart|nccl|nvidia-ml)\b")


def declared(header):
    """The functions that the text of a header exports."""
    return set(_DECLARATION.findall(header))


def exported(nm_output):
    """The symbols that `nm --dynamic --defined-only` lists, without local ones."""
    entries = (line.split() for line in nm_output.splitlines() if line.strip())
    return {entry[-1].split("@")[0] for entry in entries if entry[-2] != "A" and entry[-2].isupper()}


def needed(readelf_output):
    """The libraries that `readelf --dynamic` says it is linked with."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf_output))


def problems(symbols, libraries, functions):
    found = [f"{name} is exported, and no function of commpool.h" for name in sorted(symbols - functions)]
    found += [f"{name} is declared in commpool.h and not exported" for name in sorted(functions - symbols)]
    linked = sorted(filter(_GPU_LIBRARY.match, libraries))
    found += [f"{name} is linked, and has to be opened at run time" for name in linked]
    return found


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
