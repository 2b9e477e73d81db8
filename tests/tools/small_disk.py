"""A disk with little room for a program under test, in a name space of mounts that it has for itself."""

import subprocess
import tempfile

_UNSHARE = ["unshare", "--map-root-user", "--mount"]


def may_mount(test):
    """The words before a program that may mount; the test is skipped where this system lets nobody."""
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False)
    if tried.returncode != 0:
        test.skipTest("this system lets nobody mount a small disk")
    return _UNSHARE
