"""tools/check --each builds what each commit of a range touches, and checks it; Bazel and the check are stand-ins."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = [pathlib.Path(path).resolve() for path in sys.argv[1:]]  # tools/check and what it calls
# Notes the query of each call, and fails to build where a source says so.
BAZEL = """#!/bin/bash
case $1 in
  query) echo "$3" >>"$QUERIES"; echo //a:a ;;
  build) ! grep -r --include=*.cc 'does not build' . ;;
esac
"""
CHECK = """#!/bin/bash
if grep -rl --include=*.cc 'badly formatted' .; then exit 1; fi
echo 3 passed, 0 failed
"""


class EachCommit(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.checkout = self.folder / "checkout"
        self.queries = self.folder / "queries"
        self.queries.touch()
        self.environment = dict(os.environ, QUERIES=str(self.queries), COMMPOOL_CACHE=str(self.folder / "cache"),
                                BAZEL=str(self.write(self.folder / "bazel", BAZEL, 0o755)), HOME=str(self.folder))
        for role in ("AUTHOR", "COMMITTER"):
            self.environment.update({f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@b"})
        self.git("init", "--quiet", str(self.checkout), at=self.folder)
        self.write(self.checkout / "tools/check", CHECK, 0o755)
        self.base = self.commit("Begin", {"BUILD": "", "a/BUILD": "", "a/b.cc": "", "README.md": ""})

    def write(self, path, text, mode=0o644):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def git(self, *arguments, at=None):
        return subprocess.run(["git", *arguments], cwd=at or self.checkout, env=self.environment, check=True,
                              capture_output=True, text=True).stdout

    def commit(self, subject, texts):
        for name, text in texts.items():
            self.write(self.checkout / name, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)
        return self.git("rev-parse", "HEAD").strip()

    def check_each(self):
        """The status and the lines of the real tools/check, which is not part of the commits."""
        tools = self.checkout / "tools"
        for script in SCRIPTS:
            shutil.copy(script, tools / script.name)
        run = subprocess.run([tools / "check", "--each", self.base], env=self.environment, check=False,
                             capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout.splitlines()

    def test_what_a_killed_run_left_is_in_nobodys_way(self):
        self.commit("Change a", {"a/b.cc": "int a;"})
        name = hashlib.sha256(str(self.checkout).encode()).hexdigest()[:12]
        self.git("worktree", "add", "--quiet", "--detach", str(self.folder / "cache/each" / name), self.base)
        status, lines = self.check_each()
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed"))

    def test_each_commit_is_a_line_and_the_oldest_is_first(self):
        self.commit("Say one thing", {"a/b.cc": "1"})
        self.commit("Say another", {"a/b.cc": "2"})
        status, lines = self.check_each()
        self.assertEqual(status, 0)
        self.assertEqual([line.split(" ", 1)[1] for line in lines], [
            "Say one thing: 1 targets built, tools/check: 3 passed, 0 failed",
            "Say another: 1 targets built, tools/check: 3 passed, 0 failed", "passed, 0 failed"])

    def test_what_fails_is_named_though_a_later_commit_mends_it(self):
        self.commit("Break the build", {"a/b.cc": "does not build"})
        self.commit("Break the format", {"a/b.cc": "badly formatted"})
        self.commit("Mend both", {"a/b.cc": ""})
        status, lines = self.check_each()
        self.assertEqual(status, 1)
        self.assertTrue(lines[0].endswith("Break the build: the build failed"), lines)
        self.assertIn("does not build", lines[1])
        self.assertTrue(lines[2].endswith("Break the format: tools/check failed"), lines)
        self.assertEqual(lines[-1], "1 passed, 2 failed")

    def test_what_uses_a_file_is_built_and_for_words_nothing(self):
        self.commit("A source", {"a/b.cc": "1"})
        self.commit("A source below a package", {"a/c/d.cc": "1"})
        self.commit("Words", {"README.md": "1", "a/README.md": "1"})
        self.commit("Rules", {"a/e.bzl": "1"})
        _, lines = self.check_each()
        self.assertIn("Words: 0 targets built", lines[2])
        of_package = "kind(rule, rdeps(//..., set(//a:*)))"
        self.assertEqual(self.queries.read_text().splitlines(), [of_package, of_package, "kind(rule, //...)"])

    def test_nothing_of_it_stays_but_what_was_built(self):
        self.commit("Say one thing", {"a/b.cc": "1"})
        head = self.git("rev-parse", "HEAD")
        self.check_each()
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertEqual(self.git("rev-parse", "HEAD"), head)

    def test_no_commit_is_no_success(self):
        self.assertEqual(self.check_each(), (1, ["0 passed, 0 failed"]))
