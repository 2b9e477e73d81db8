#!/usr/bin/env python3
"""Writes the assembly and the version script of a stand-in for a system library as an older system has it.

usage: make_stub.py LIBRARY ASSEMBLY SCRIPT drop|keep|moved:PREFIX,... [NODE=VERSION...]
  drop|keep      what to do with symbols that the older system has not at all: keep leaves them to the linker, which
                 then asks for the newer system; drop leaves them to an archive that follows
  moved          only symbols that newer systems have in LIBRARY and the older one in the library that this stands in
                 for, of those whose names begin with a PREFIX: before 2.30 glibc looks for a symbol in the file that
                 the linker found it in, and nowhere else
  NODE=VERSION   takes of the version nodes called NODE_... those up to VERSION, and of other nodes all: GLIBC=2.28

A program that is linked against the stand-in asks for the old variants of symbols, so it runs on the older system and
on every newer one.
"""

import re
import subprocess
import sys

# `objdump -T`: address, flags, section, size, version (in parentheses unless it is the default), name.
_SYMBOL = re.compile(r"^[0-9a-f]+ (.{7}) (\S+)\s+([0-9a-f]+)\s+\(?([A-Za-z]\w*_[0-9.]+)\)?\s+(?:\.\w+ )?(\S+)$")


def _numbers(version):
    return [int(part) for part in version.split(".")]


def _is_old(node, limits):
    name, _, version = node.rpartition("_")
    return name not in limits or _numbers(version) <= _numbers(limits[name])


def _rank(node, limits):
    """The rank of a variant; the highest rank wins: old variants before new ones, then the newest."""
    return _is_old(node, limits), _numbers(node.rpartition("_")[2])


def read_symbols(listing, limits, newer):
    """name -> (node, kind, bytes): each symbol's newest variant within the limits; `newer` as in the usage."""
    symbols = {}
    for line in listing.splitlines():
        match = _SYMBOL.match(line)
        if not match or match.group(2) in ("*UND*", "*ABS*"):
            continue
        flags, section, size, node, name = match.groups()
        if newer == "drop" and not _is_old(node, limits):
            continue
        is_function = "F" in flags or "i" in flags
        kind = "tls_object" if section in (".tbss", ".tdata") else "function" if is_function else "object"
        if name not in symbols or _rank(node, limits) > _rank(symbols[name][0], limits):
            symbols[name] = (node, kind, int(size, 16))
    return symbols


def moved_symbols(listing, limits, prefixes):
    """A symbol that moves into another library gets a variant there that is as new as the move."""
    newest = read_symbols(listing, {}, "keep")
    old = read_symbols(listing, limits, "drop")
    return {name: symbol for name, symbol in old.items()
            if name.startswith(tuple(prefixes)) and newest[name][0] != symbol[0]}


def assembly(symbols):
    lines = []
    for number, (name, (node, kind, size)) in enumerate(sorted(symbols.items())):
        section = {"function": ".text", "object": ".data", "tls_object": ".section .tbss,\"awT\",@nobits"}[kind]
        local = f"stub_{number}"
        lines += [section, f".globl {local}", f".type {local}, @{kind}", f".size {local}, {max(size, 1)}", f"{local}:",
                  f".zero {max(size, 1)}", f".symver {local}, {name}@@{node}, remove"]
    return "\n".join(lines) + "\n.section .note.GNU-stack,\"\",@progbits\n"


def script(symbols):
    nodes = sorted({node for node, _, _ in symbols.values()})
    return "".join(f"{node} {{}};\n" for node in nodes)


def main():
    library, assembly_file, script_file, newer, *limits = sys.argv[1:]
    listing = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    nodes = dict(limit.split("=") for limit in limits)
    mode, _, prefixes = newer.partition(":")
    if mode == "moved":
        symbols = moved_symbols(listing, nodes, prefixes.split(","))
    else:
        symbols = read_symbols(listing, nodes, mode)
    if not symbols:
        sys.exit(f"{library} exports nothing within {limits}")
    with open(assembly_file, "w", encoding="ascii") as file:
        file.write(assembly(symbols))
    with open(script_file, "w", encoding="ascii") as file:
        file.write(script(symbols))


if __name__ == "__main__":
    main()
