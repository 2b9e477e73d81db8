"""The program `commpool`, started as a user would, on the emulator."""

import os
import subprocess

CLI = os.path.abspath("tools/cli/commpool")


def run(*arguments, **variables):
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    return subprocess.run([CLI, *arguments], env=environment, capture_output=True, text=True, timeout=120)
