"""The program `commpool`, started as a user would, on the emulator."""

import lzma
import os
import subprocess
import tempfile
import unittest

CLI = os.path.abspath("tools/cli/commpool")


def run(*arguments, limit_s=120, **variables):
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    return subprocess.run([CLI, *arguments], env=environment, capture_output=True, text=True, timeout=limit_s)


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
