"""Judges many faults with one build: the tests that reach a fault's line run with the fault switched on."""

import contextlib
import pathlib
import re
import tempfile

import switches
from campaign import Verdict

# The compiler names a header with the folder that it searched: `./src/library/engine/heap.h`.
_ERROR = re.compile(r"^(?:\./)?(?P<path>[\w/.]+):(?P<line>\d+):\d+: error:", re.MULTILINE)
_MOST_BUILDS = 8


class FailingTests(Exception):
    """A test fails while every fault is off, so that every fault would seem to be noticed."""


class SwitchedJudge:
    """A fault whose line cannot hold a switch is planted alone, with the others switched off."""

    def __init__(self, scratch, judge):
        self._scratch, self._judge = scratch, judge
        self._switches, self._reached, self._originals = switches.Switches(), {}, {}

    def prepare(self, listed):
        """Builds these faults in addition to the earlier ones, and finds the tests that reach their lines."""
        self._switches.add(listed)
        for path in {fault.path for fault in listed} - set(self._originals):
            self._originals[path] = self._file(path).read_text(encoding="utf-8")
        self._build()
        with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as notes:
            if not self._judge.passes(f"--test_env=COMMPOOL_PLANTED_REACHED={notes.name}",
                                      f"--sandbox_writable_path={pathlib.Path(notes.name).parent}"):
                raise FailingTests
            self._reached = {}
            for line in set(notes.read().splitlines()):
                test, _, number = line.rpartition(" ")
                self._reached.setdefault(int(number), []).append(test)

    def __call__(self, fault):
        if not self._switches.has(fault):
            with self._planted(fault):
                return self._judge.verdict(fault, self._judge.affected(fault.path))
        number = self._switches.number(fault)
        tests = self._judge.nearest_first(fault.path, self._reached.get(number, []))
        if not tests:
            return Verdict.SURVIVED, "no test comes to the line"
        return self._judge.verdict(fault, tests, f"--test_env=COMMPOOL_PLANTED={number}")

    def _file(self, path):
        return self._scratch.folder / path

    def _write(self, alone=None):
        for path, original in self._originals.items():
            text = self._switches.text(path, original, alone)
            if self._file(path).read_text(encoding="utf-8") != text:
                self._file(path).write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def _planted(self, fault):
        self._write(alone=fault)
        try:
            yield
        finally:
            self._write()

    def _build(self):
        """Skips faults that do not compile behind a switch: a declaration in a condition, a constant expression."""
        for _ in range(_MOST_BUILDS):
            self._write()
            errors = self._judge.build_errors()
            if errors is None:
                return
            lines = {(match["path"], int(match["line"])) for match in _ERROR.finditer(errors)}
            if not [place for place in sorted(lines) if self._switches.drop_at(*place)]:
                break
        raise RuntimeError(f"the sources do not build with switches:\n{errors}")
