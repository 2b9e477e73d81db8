"""The program `commpool`, started as a user would, on the emulator."""

import os
import subprocess

CLI = os.path.abspath("tools/cli/commpool")


def run(*arguments, **variables):
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    return subprocess.run([CLI, *arguments], env=environment, capture_output=True, text=True, timeout=120)


def run_ranks(ranks, *arguments, **variables):
    """Under mpirun."""
    environment = {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks), CLI, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
