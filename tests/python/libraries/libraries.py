"""Finds the environment of tools/setup --libraries. Tests that need it are skipped without it, and say so."""

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
    """The folder of the environment's packages."""
    return next(_found()[0].glob("lib/python3*/site-packages"))


def add():
    """Makes them importable here, and runs their .pth files: one of these replaces Numba's own CUDA part by
    numba-cuda."""
    site.addsitedir(str(site_packages()))


def needed(case):
    """A decorator of test cases."""
    folder, whole = _found()
    return unittest.skipUnless(whole, f"no CCCL, RMM and Numba in {folder}: tools/setup --libraries")(case)
