#!/usr/bin/env python3
"""Synthesises traces for `commpool replay`: the same bytes for the same name, seed and steps.

usage: synthesise.py [--seed N] [--steps N] [--plain] --out FOLDER [NAME...]
Without a name, all of them; `--list` says which there are.
"""

import argparse
import pathlib
import random
import sys

import programs


def synthesise(name, seed, steps=None):
    """The trace of a program by name."""
    program, usual_steps = programs.PROGRAMS[name]
    # The generator hashes a seed that is a string, in the same way everywhere.
    return program(random.Random(f"{name} {seed}"), usual_steps if steps is None else steps)


def main(arguments):
    parser = argparse.ArgumentParser(description="Synthesises traces for `commpool replay`.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="programs; all where none is named")
    parser.add_argument("--out", type=pathlib.Path, help="folder for NAME_SEED.trace.xz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="steps of each program; its own number by default")
    parser.add_argument("--plain", action="store_true", help="text, not compressed")
    parser.add_argument("--list", action="store_true", help="the programs' names and what they are")
    options = parser.parse_args(arguments)
    if options.list:
        for name, (program, _) in sorted(programs.PROGRAMS.items()):
            print(f"{name:20} {program.__doc__.splitlines()[0]}")
        return 0
    unknown = sorted(set(options.names) - set(programs.PROGRAMS))
    if unknown or options.out is None:
        parser.error(f"no program is named {', '.join(unknown)}" if unknown else "say where to: --out FOLDER")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or sorted(programs.PROGRAMS):
        trace = synthesise(name, options.seed, options.steps)
        path = options.out / f"{name}_{options.seed}.trace{'' if options.plain else '.xz'}"
        trace.write(path)
        print(f"{path}: {len(trace)} events, peak requested {trace.peak_requested / 2**30:.2f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
