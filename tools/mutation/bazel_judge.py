"""Judges a fault by the tests that depend on its file."""

import pathlib
import re
import shlex
import shutil
import subprocess

from campaign import Verdict

_BUILD_FAILED, _TESTS_FAILED = 1, 3
# Bazel's limits for small, moderate, long and eternal tests: a fault that hangs is noticed by the first.
_TIMEOUTS = "--test_timeout=120,180,300,600"
# The outputs for a fault would fill a disk cache, and nobody needs them again.
_KEEP_NOTHING = "--noremote_upload_local_results"
# A fault may take memory without end. 8 GiB are more than any test needs.
_LIMIT = "--run_under=prlimit --data=8589934592"
# Most of a fault's cost is linking tests; the first failure is enough.
_FAST_LINKER = ["--linkopt=-fuse-ld=lld"] if shutil.which("ld.lld") else []
# Finds an element beyond a container's end where it is read, not only where it matters.
_CHECKED = "--copt=-D_GLIBCXX_ASSERTIONS"
_FIRST_FAILURE = "--test_env=GTEST_FAIL_FAST=1"
_UNSUCCESSFUL = re.compile(r"^(//\S+)\s.*\b(?:FAILED|TIMEOUT|FLAKY)\b", re.MULTILINE)


class BazelJudge:

    def __init__(self, scratch, folders, bazel="bazel", jobs=None):
        """`folders`: the tests to run; `bazel` and `jobs`: how to run them."""
        self._scratch, self._bazel = scratch, shlex.split(bazel)
        self._universe = " + ".join(f"//tests/{folder}/..." for folder in folders)
        self._options = ["-c", "fastbuild", "--symlink_prefix=/", "--noshow_progress", _CHECKED]
        self._options += [*_FAST_LINKER, *([f"--jobs={jobs}"] if jobs else [])]
        self._affected = {}

    def affected(self, path):
        """The tests that depend on a file, nearest first."""
        if path not in self._affected:
            file = pathlib.PurePath(path)
            package = next(folder for folder in file.parents if (self._scratch.folder / folder / "BUILD").exists())
            label = f"//{package}:{file.relative_to(package)}"
            query = f'tests(rdeps({self._universe}, {label})) except attr(tags, "manual", {self._universe})'
            labels = self._run("query", "--noshow_progress", query, check=True).stdout.split()
            self._affected[path] = self.nearest_first(path, labels)
        return self._affected[path]

    def nearest_first(self, path, labels):
        """The tests of the file's own name, then those of its own layer, then the others."""
        return sorted(labels, key=lambda test: (self._distance(pathlib.PurePath(path), test), test))

    @staticmethod
    def _distance(file, test):
        package, _, name = test.partition(":")
        if name == f"{file.stem}_test":
            return 0
        return 1 if package.split("/")[3] == file.parts[2] else 2

    def passes(self, *options):
        """Whether every test passes without a fault; otherwise every fault would seem to be noticed."""
        return self._test(self._universe.split(" + "), *options).returncode == 0

    def build_errors(self):
        """The compiler's errors in the tests' sources; None where all build."""
        result = self._run("build", *self._options, "--keep_going", "--build_tests_only", *self._universe.split(" + "))
        return None if result.returncode == 0 else result.stderr

    def verdict(self, fault, tests, *options):
        """The tests' verdict on a fault in the sources; they run in groups, nearest first."""
        file = pathlib.PurePath(fault.path)
        for distance in range(3):
            group = [test for test in tests if self._distance(file, test) == distance]
            result = self._test(group, _KEEP_NOTHING, *options) if group else None
            if result is None or result.returncode == 0:
                continue
            if result.returncode == _BUILD_FAILED:
                return Verdict.NOT_COMPILED, "it does not compile"
            if result.returncode == _TESTS_FAILED:
                return Verdict.NOTICED, ", ".join(sorted(set(_UNSUCCESSFUL.findall(result.stdout))))
            raise RuntimeError(f"bazel ended with {result.returncode}:\n{result.stderr}")
        return Verdict.SURVIVED, f"{len(tests)} tests pass" if tests else "no test depends on the file"

    def shut_down(self):
        self._run("shutdown")

    def _test(self, labels, *options):
        return self._run("test", *self._options, _TIMEOUTS, _LIMIT, _FIRST_FAILURE, "--notest_keep_going",
                         "--test_output=summary", "--test_summary=terse", *options, *labels)

    def _run(self, *words, check=False):
        return subprocess.run([*self._bazel, *words], cwd=self._scratch.folder, check=check, capture_output=True,
                              text=True)
