"""The program `commpool` of a wheel: it runs the C++ program inside the package."""

import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Replaces this process by that program, with the same arguments."""
    program = pathlib.Path(__file__).parent / "bin/commpool"
    if not program.exists():
        sys.exit(f"commpool: there is no {program}: this package was not installed from a wheel")
    # the full path: the program finds the library and the emulator by it
    os.execv(program, [str(program), *sys.argv[1:]])
