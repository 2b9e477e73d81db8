"""Under `audit`, `run` and `emulate` a program ends as it does alone: the same status, and nothing of it runs on."""

import concurrent.futures
import os
import signal
import subprocess
import tempfile
import unittest

_CLI = os.path.abspath("tools/cli/commpool")
_PROGRAM = os.path.abspath("tests/interpose/preload/ends_program")
_EMULATE = [_CLI, "emulate", "--"]
_UNDER = {
    "emulate": _EMULATE,
    "audit": [*_EMULATE, _CLI, "audit", "--"],
    "run": [*_EMULATE, _CLI, "run", "--"],
}
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT, signal.SIGQUIT, signal.SIGSEGV)
_DIES = {f"{way} {number.name}": ([way, str(int(number))], -number) for number in _ENDING
         for way in ("raise", "kill", "thread", "blocked", "again-in-handler", "chained")}
# What the program does, and its status alone.
_INSIDE = {
    **_DIES,
    **{way: ([way], 45) for way in ("return", "exit", "_exit", "quick_exit", "exec")},
    **{way: ([way], -signal.SIGABRT) for way in ("abort", "abort-at-exit", "exec-kill")},
    **{f"abort in a handler of {number.name}": (["abort-in-handler", str(int(number))], -signal.SIGABRT)
       for number in (signal.SIGTERM, signal.SIGSEGV)},
    "_exit in a handler": (["exit-in-handler", str(int(signal.SIGTERM))], 45),
    "a signal that is ignored": (["ignored", str(int(signal.SIGTERM))], 46),
    "a fork that a signal ends": (["fork", str(int(signal.SIGABRT))], 45),
}
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT, signal.SIGQUIT, signal.SIGKILL,
            signal.SIGUSR1)


def _end_of(prefix, words, number=None, errors=subprocess.DEVNULL):
    """Of the program, by a signal from outside once it waits."""
    with subprocess.Popen([*prefix, _PROGRAM, *words], stdout=subprocess.PIPE, stderr=errors, text=True) as program:
        if number is not None:
            program.stdout.readline()
            program.send_signal(number)
        out, _ = program.communicate(timeout=120)
    return program.returncode, out


def _end_by(prefix, number):
    return _end_of(prefix, ["wait"], number)


class Ends(unittest.TestCase):
    def check(self, end_of, ways):
        """`ways`: {name: (what `end_of` takes, the status alone)}."""
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            for under, prefix in {"alone": [], **_UNDER}.items():
                found = {name: threads.submit(end_of, prefix, how) for name, (how, _) in ways.items()}
                for name, (_, status) in ways.items():
                    with self.subTest(under=under, way=name):
                        self.assertEqual(found[name].result(), (status, "went on\n" if status == 46 else ""))

    def test_from_inside(self):
        self.check(_end_of, _INSIDE)

    def test_from_outside(self):
        self.check(_end_by, {number.name: (number, -number) for number in _OUTSIDE})

    def test_where_nobody_reads_what_is_said(self):
        for under, prefix in _UNDER.items():
            reader, writer = os.pipe()
            os.close(reader)
            self.assertEqual(_end_of(prefix, ["return"], errors=writer), (45, ""), under)
            os.close(writer)

    def test_where_files_may_not_grow(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            audit = [*_EMULATE, _CLI, "audit", "--record", record, "--"]
            self.assertEqual(_end_of(audit, ["no-files"]), (45, ""))
