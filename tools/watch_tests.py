#!/usr/bin/env python3
"""Runs `bazel test` and prints a line a minute: many CI systems end a command that is silent.

usage: watch_tests.py EVENTS COMMAND...    EVENTS: where COMMAND writes its build events
Bazel prints its own progress only when something changes, so one long test can silence it. The status is the command's.
"""

import pathlib
import signal
import subprocess
import sys
import time

import count_tests

_EVERY_SECONDS = 60


def progress(text, seconds):
    """The line for a run that began `seconds` ago. Bazel may be writing the last event of `text`."""
    tests, results, _ = count_tests.read_events(text.splitlines(keepends=True)[:text.count("\n")])
    done = {label for label, _ in results}
    failed = {label for label, result in results if result["status"] != "PASSED"}
    counts = f"{len(done)} of {len(tests)} tests done, {len(failed)} failed" if tests else "no test yet"
    return f"tools/test: {round(seconds / 60)} min, {counts}"


def main(events, *command):
    begin = time.monotonic()
    signal.signal(signal.SIGINT, lambda *_: None)  # Bazel gets it too, and ends the run
    with subprocess.Popen(command) as run:
        while True:
            try:
                return run.wait(timeout=_EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                text = pathlib.Path(events).read_text(encoding="utf-8", errors="replace")
                print(progress(text, time.monotonic() - begin), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
