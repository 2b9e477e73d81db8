"""The programs `commpool` and `commpool_stress`, started as a user would, on the emulator."""

import contextlib
import lzma
import os
import pty
import subprocess
import tempfile
import unittest

CLI = os.path.abspath("tools/cli/commpool")
STRESS = os.path.abspath("tools/stress/commpool_stress")


def run(*arguments, program=CLI, limit_s=120, **variables):
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=limit_s)


def run_stress(*arguments, **options):
    return run(*arguments, program=STRESS, **options)


def stderr_on_a_terminal(*arguments, program=CLI):
    here, there = pty.openpty()
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated"}
    subprocess.run([program, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=there, timeout=120)
    os.close(there)
    text = b""
    with contextlib.suppress(OSError):  # that is how the end of a terminal reads
        while more := os.read(here, 1 << 16):  # may be a part of what was written
            text += more
    os.close(here)
    return text.decode()


def run_ranks(ranks, *arguments, **variables):
    """Under mpirun."""
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), CLI, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


class TracesTest(unittest.TestCase):
    """Has a folder for the traces that a test writes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        data = text.encode()
        with open(path, "wb") as file:
            file.write(lzma.compress(data) if name.endswith(".xz") else data)
        return path
