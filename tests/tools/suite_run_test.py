"""tools/test prints its progress as lines where no terminal shows it; Bazel and tools/setup are stand-ins."""

import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = [pathlib.Path(path).resolve() for path in sys.argv[1:]]  # tools/test and what it calls
# Notes its words, and reports one test that passed.
BAZEL = """#!/bin/bash
printf '%s\\n' "$@" >"$WORDS"
for word; do
  case $word in --build_event_json_file=*)
    echo '{"id": {"testResult": {"label": "//a:a"}}, "testResult": {"status": "PASSED"}}' >"${word#*=}"
    echo '{"finished": {"exitCode": {"name": "SUCCESS", "code": 0}}}' >>"${word#*=}" ;;
  esac
done
exit "$STATUS"
"""
# One of two tests is done, another event is half written; then a test goes on until the gate opens.
LONG_BAZEL = """#!/bin/bash
for word; do
  case $word in --build_event_json_file=*)
    for label in //a:a //b:b; do
      echo '{"id": {"targetConfigured": {"label": "'$label'"}}, "configured": {"testSize": "LARGE"}}'
    done >"${word#*=}"
    echo '{"id": {"testResult": {"label": "//a:a"}}, "testResult": {"status": "FAILED"}}' >>"${word#*=}"
    printf '{"id": {"testRes' >>"${word#*=}" ;;
  esac
done
read -r <"$GATE"
exit 3
"""


class SuiteRun(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        (self.folder / "tools").mkdir()
        for script in SCRIPTS:
            shutil.copy(script, self.folder / "tools" / script.name)
        self.program("tools/setup", "#!/bin/bash\n")
        self.words = self.folder / "words"
        self.environment = dict(os.environ, BAZEL=str(self.program("bazel", BAZEL)), WORDS=str(self.words), STATUS="0",
                                HOME=str(self.folder))

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_suite(self, *words, **streams):
        """How the run ended, and the words that Bazel got."""
        streams = streams or {"capture_output": True}
        run = subprocess.run([self.folder / "tools/test", *words], env=self.environment, check=False, text=True,
                             stdin=subprocess.DEVNULL, **streams)
        return run, self.words.read_text().splitlines()

    def terminal(self):
        """A terminal, which a process that the test starts writes to."""
        ends = pty.openpty()
        for end in ends:
            self.addCleanup(os.close, end)
        return ends[1]

    def test_without_a_terminal_bazel_writes_its_progress_as_lines(self):
        _, words = self.run_suite()
        self.assertIn("--curses=no", words)
        seconds = [int(word.split("=")[1]) for word in words if word.startswith("--show_progress_rate_limit=")]
        self.assertTrue(seconds and 0 < seconds[0] < 60, words)

    def test_without_a_terminal_a_silent_bazel_gets_a_line_each_minute(self):
        watch = self.folder / "tools/watch_tests.py"
        text = watch.read_text()
        self.assertIn("_EVERY_SECONDS = 60\n", text)
        watch.write_text(text.replace("_EVERY_SECONDS = 60\n", "_EVERY_SECONDS = 0.05\n"))
        gate = self.folder / "gate"
        os.mkfifo(gate)
        self.environment.update(BAZEL=str(self.program("bazel", LONG_BAZEL)), GATE=str(gate))
        with subprocess.Popen([self.folder / "tools/test"], env=self.environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
            self.assertIn("tools/test: 0 min, 1 of 2 tests done, 1 failed\n", run.stdout)  # reads until it is said
            gate.write_text("end\n")
            run.communicate()
        self.assertEqual(run.returncode, 3)

    def test_an_output_that_is_no_terminal_is_enough(self):
        _, words = self.run_suite(stdout=self.terminal(), stderr=subprocess.PIPE)
        self.assertIn("--curses=no", words)

    def test_a_terminal_is_left_to_bazel(self):
        terminal = self.terminal()
        _, words = self.run_suite(stdout=terminal, stderr=terminal)
        self.assertFalse([word for word in words if "curses" in word or "progress" in word], words)

    def test_what_is_asked_for_goes_to_bazel(self):
        _, words = self.run_suite("--config", "asan", "//a:a")
        self.assertEqual(words[words.index("--config") + 1], "asan")
        self.assertEqual(words[-2:], ["--", "//a:a"])

    def test_the_last_line_counts_and_the_status_is_bazels(self):
        run, _ = self.run_suite()
        self.assertEqual((run.returncode, run.stdout.splitlines()[-1]), (0, "1 passed, 0 failed"))
        self.environment["STATUS"] = "3"
        self.assertEqual(self.run_suite()[0].returncode, 3)
