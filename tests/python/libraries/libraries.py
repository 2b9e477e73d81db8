"""What tools/setup --libraries has made, for the tests that need it; else they are skipped, and say so."""

import functools
import pathlib
import site
import subprocess
import unittest

_SCRIPT = "source tools/torch_environment.sh; libraries_folder; ! have_libraries $(libraries_folder) || echo whole"


@functools.lru_cache(maxsize=None)
def _found():
    words = subprocess.run(["bash", "-c", _SCRIPT], capture_output=True, text=True, check=False).stdout.split()
    return pathlib.Path(words[0]), "whole" in words


def site_packages():
    """Where the environment's packages lie."""
    return next(_found()[0].glob("lib/python3*/site-packages"))


def add():
    """Makes them importable here, with what their .pth files do: one puts numba-cuda in the place of Numba's own."""
    site.addsitedir(str(site_packages()))


def needed(case):
    """A decorator of test cases."""
    folder, whole = _found()
    return unittest.skipUnless(whole, f"no CCCL, RMM and Numba in {folder}: tools/setup --libraries")(case)
