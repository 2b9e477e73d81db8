"""The programs `commpool` and `commpool_stress`, started as a user would, on the emulator."""

import contextlib
import glob
import json
import lzma
import os
import pathlib
import pty
import subprocess
import tempfile
import unittest

CLI = os.path.abspath("tools/cli/commpool")
STRESS = os.path.abspath("tools/stress/commpool_stress")
WRITER = os.path.abspath("tests/report/example_recordings")
REFUSED = 3


def environment(**variables):
    return {**os.environ, "COMMPOOL_DRIVER": "emulated", **variables}


def run(*arguments, program=CLI, ranks=None, limit_s=120, **variables):
    """`ranks`: so many, under mpirun."""
    launcher = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(ranks)] if ranks else []
    return subprocess.run([*launcher, program, *arguments], env=environment(**variables), capture_output=True,
                          text=True, timeout=limit_s)


def stderr_on_a_terminal(*arguments, program=CLI):
    here, there = pty.openpty()
    subprocess.run([program, *arguments], env=environment(), stdout=subprocess.DEVNULL, stderr=there, timeout=120)
    os.close(there)
    text = b""
    with contextlib.suppress(OSError):  # that is how the end of a terminal reads
        while more := os.read(here, 1 << 16):  # may be a part of what was written
            text += more
    os.close(here)
    return text.decode()


class CommandTest(unittest.TestCase):
    program = CLI

    def ends(self, status, *arguments, **options):
        """The result of a command, which ends with this status."""
        result = run(*arguments, **{"program": self.program, **options})
        self.assertEqual(result.returncode, status, f"{arguments}: {result.stdout}{result.stderr}")
        return result

    def refuses(self, status, reason, *arguments, **options):
        """The command ends with this status, and says why: a refusal is a result, the rest are errors."""
        result = self.ends(status, *arguments, **options)
        self.assertIn(reason, result.stdout if status == REFUSED else result.stderr)

    def each_ends(self, status, command, *several):
        """The command ends with this status by each of several lines of arguments."""
        for arguments in several:
            self.ends(status, *command.split(), *arguments.split())

    def report(self, *arguments, **options):
        """What the command prints as JSON."""
        return json.loads(self.ends(0, *arguments, "--json", **options).stdout)

    def record(self, *arguments, **options):
        """The one line that the command records, and its result."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "record.jsonl")
            result = self.ends(0, *arguments, "--record", str(file), **options)
            [line] = file.read_text(encoding="utf-8").splitlines()
        return json.loads(line), result


class StressTest(CommandTest):
    program = STRESS


class TracesTest(CommandTest):
    """Has a folder for the traces that a test writes."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, name, text):
        path = pathlib.Path(self.folder, name)
        path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())
        return str(path)


class RecordingsTest(TracesTest):
    """Has a place for recordings too."""

    def setUp(self):
        super().setUp()
        self.recordings = os.path.join(self.folder, "recordings")

    def make(self, *options, ranks=2, events=20000):
        """The files of a program that was never run, by rank."""
        subprocess.run([WRITER, self.recordings, str(ranks), str(events), *options], check=True, timeout=60)
        return sorted(glob.glob(os.path.join(self.recordings, "*.recording")))
