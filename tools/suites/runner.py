"""Runs a suite's files with and without a pool, each in a process. A test that ends or hangs it stops no other."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

WAYS = ("without", "pool")
DIES, HANGS = "dies", "hangs"
_BEGIN = 600  # the least seconds for importing a framework, collecting a file's tests, and ending


class CannotBegin(Exception):
    """A process ended before its framework was imported and set on the pool; the log says why."""


class _Process:
    """Runs one file, in its own session, so that processes of its tests end with it."""

    def __init__(self, words, wanted, log):
        program = pathlib.Path(__file__).with_name("in_process.py")
        self._process = subprocess.Popen([sys.executable, str(program), *words], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        self.is_late = False
        with contextlib.suppress(BrokenPipeError):  # it could not begin; its exit status says so
            json.dump(wanted, self._process.stdin)
            self._process.stdin.close()

    def line(self, seconds):
        """Its next line; None where it has ended, or was ended after a long silence."""

        def end():
            self.is_late = self._process.poll() is None
            self.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        text = self._process.stdout.readline()
        timer.cancel()
        with contextlib.suppress(json.JSONDecodeError):  # it died while it wrote
            return json.loads(text)
        return None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self):
        """Its exit status, once its whole session has ended."""
        code = self._process.wait()
        self.kill()
        self._process.stdout.close()
        return code


class Runs:
    """Runs one suite."""

    def __init__(self, suite, options):
        self._suite, self._options, self.versions, self._begun = suite, options, {}, set()
        self._kept = contextlib.ExitStack()

    def __enter__(self):
        self._work = self._options.work or pathlib.Path(self._kept.enter_context(tempfile.TemporaryDirectory()))
        self._work.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_):
        self._kept.close()

    def of_all(self, files):
        """{way: {test: outcome}}"""
        found = {way: {} for way in WAYS}
        for file in files:
            name = file.relative_to(self._options.source).as_posix()
            if not re.search(self._options.files, name):
                continue
            for way in WAYS:
                outcomes = self._kept_outcomes(file, name, way)
                found[way].update(outcomes)
                print(f"{way:<7} {name}: {len(outcomes)} tests", file=sys.stderr, flush=True)
        return found

    def _kept_outcomes(self, file, name, way):
        place = self._work / f"{self._suite}-{way}-{name.replace('/', '.')}"
        kept = place.with_name(place.name + ".json")
        if kept.exists():
            return json.loads(kept.read_text(encoding="utf-8"))
        with open(place.with_name(place.name + ".log"), "w", encoding="utf-8") as log:
            outcomes = self._of_file(file, name, way, log)
        kept.write_text(json.dumps(outcomes), encoding="utf-8")
        return outcomes

    def _of_file(self, file, name, way, log):
        outcomes = {}
        while True:
            before = len(outcomes)
            begun, ended, process = self._some_of_file(file, way, log, outcomes)
            code = process.end()
            if way not in self._begun:
                raise CannotBegin(f"{way}: {pathlib.Path(log.name).read_text(encoding='utf-8').strip()[-2000:]}")
            if ended and code == 0:
                return outcomes
            # It ended in a test, while it collected tests, between two tests, or at its own end.
            reason = "too long without a word" if process.is_late else f"exit code {code}"
            outcomes[begun or f"{name} (the process)"] = {"outcome": HANGS if process.is_late else DIES,
                                                          "reason": reason, "served": 0}
            if ended or (begun is None and len(outcomes) == before + 1):
                return outcomes

    def _some_of_file(self, file, way, log, outcomes):
        """Runs tests in one process until it ends. Returns the current test, and whether all were done."""
        wanted = {"tests": self._options.tests, "mode": self._options.mode, "done": list(outcomes),
                  "source": str(self._options.source.resolve())}
        process = _Process([self._suite, way, str(file.resolve())], wanted, log)
        begun, ended = None, False
        try:
            while (said := process.line(self._options.seconds if begun else max(_BEGIN, self._options.seconds))):
                self._begun.add(way)
                self.versions.update(said.get("versions", {}))
                begun, ended = said.get("begins"), "ended" in said
                if "name" in said:
                    outcomes[said.pop("name")] = said
        except BaseException:
            process.kill()
            raise
        return begun, ended, process
