"""The program `commpool` of a wheel: the one in C++ lies inside of the package."""

import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Becomes it, with this process's arguments."""
    program = pathlib.Path(__file__).parent / "bin/commpool"
    if not program.exists():
        sys.exit(f"commpool: there is no {program}: this package was not installed from a wheel")
    os.execv(program, [str(program), *sys.argv[1:]])  # its whole path: it finds the library and the emulator by it
