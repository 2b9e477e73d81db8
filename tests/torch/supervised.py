"""Tests one by one in a process of theirs: behind one that ends it, or takes too long, another process goes on.

The file that holds the tests is both: `serve` is the process's part, `Supervisor` starts it and asks.
"""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
import unittest

BEGIN = 600  # seconds for a process to begin
PASS, SKIP, FAIL, DIES, HANGS, NOT_RUN = "pass", "skip", "fail", "dies", "hangs", "not run"


class _Outcome(unittest.TestResult):
    """What became of one test, with the first line of its reason."""

    def __init__(self, outcome_of):
        super().__init__()
        self.said, self.why, self._outcome_of = PASS, "", outcome_of

    def _note(self, said, error):
        text = error if isinstance(error, str) else f"{type(error[1]).__name__}: {error[1]}"
        print(error if isinstance(error, str) else "".join(traceback.format_exception(*error)), file=sys.stderr,
              flush=True)
        self.said, self.why = self._outcome_of(said, text), text.strip().partition("\n")[0][:300]

    def addSkip(self, test, reason):
        self._note(SKIP, reason)

    def addFailure(self, test, err):
        self._note(FAIL, err)

    def addError(self, test, err):
        self._note(FAIL, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._note(FAIL, err)

    def addExpectedFailure(self, test, err):
        pass


def serve(names, make, outcome_of=lambda said, _text: said):
    """Answers with the names, then runs `make(name)` for each name that comes; what tests print goes to stderr.

    `outcome_of(outcome, what the test said)` may know better what became of it.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write(json.dumps(names) + "\n")
    for line in sys.stdin:
        print(f"-- {line.strip()}", file=sys.stderr, flush=True)
        outcome = _Outcome(outcome_of)
        unittest.TestSuite([make(line.strip())]).run(outcome)
        answers.write(json.dumps([outcome.said, outcome.why]) + "\n")


class Supervisor:
    """Runs the tests of a command that serves."""

    def __init__(self, command, log, seconds):
        self._command, self._log, self._seconds = command, log, seconds
        self._process, self.names = None, self._begin()

    def _begin(self):
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._log, text=True)
        return self._answer(BEGIN)

    def _answer(self, seconds):
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        return json.loads(line) if line else None

    def run(self, name):
        """[outcome, reason] of one."""
        if self._process is None and self._begin() is None:
            return [NOT_RUN, "no process begins any more"]
        begin = time.monotonic()
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        found = self._answer(self._seconds)
        if found is not None:
            return found
        code = self._process.wait()
        self._process = None
        late = time.monotonic() - begin >= self._seconds
        return [HANGS, f"longer than {self._seconds} s"] if late else [DIES, f"exit code {code}"]

    def end(self):
        """Ends the process; one that does not end is killed."""
        if self._process is None:
            return
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
