#!/usr/bin/env python3
"""Proves that each commit of a range can be bisected: it builds what it touches, and passes its own tools/check.

usage: tools/check --each BASE      the commits of BASE..HEAD, the oldest first
Prints one line a commit, below it what a failure said, and at the end `N passed, N failed`. The commits are checked out
one after another in a scratch worktree below COMMPOOL_CACHE, whose build outputs are kept for the next run.
"""

import hashlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
_BAZEL = shlex.split(os.environ.get("BAZEL", "bazel"))
_READ_BY_PEOPLE_ALONE = {".md"}
_FOR_EVERYTHING = {".bzl", ".bazelrc", "WORKSPACE"}
_LINES_OF_A_FAILURE = 40


class Failure(Exception):
    """A failed step of a commit; the text has the step and its output."""


def output_of(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def scratch_folder():
    """One for each checkout, by its path."""
    cache = pathlib.Path(os.environ.get("COMMPOOL_CACHE", pathlib.Path.home() / ".cache" / "commpool"))
    return cache / "each" / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]


def package_of(folder, path):
    """The label of all targets beside a file, which may be gone."""
    parents = (parent for parent in path.parents if (folder / parent / "BUILD").exists())
    return f"//{next(parents, pathlib.Path())}:*".replace("//.:", "//:")


def touched(folder, paths):
    """The query for the targets to build after changes of these files; empty where nothing is built from them."""
    paths = [path for path in paths if path.suffix not in _READ_BY_PEOPLE_ALONE]
    if any(path.suffix in _FOR_EVERYTHING or path.name in _FOR_EVERYTHING for path in paths):
        return "kind(rule, //...)"
    packages = sorted({package_of(folder, path) for path in paths})
    return f"kind(rule, rdeps(//..., set({' '.join(packages)})))" if packages else ""


def step(name, folder, *command):
    """The output of a command that must succeed."""
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stdout + run.stderr).splitlines()[-_LINES_OF_A_FAILURE:]
        raise Failure("\n    ".join([f"{name} failed", *said]))
    return run.stdout


def build(folder, query):
    """How many targets were built."""
    targets = step("the query of targets", folder, *_BAZEL, "query", "--noshow_progress", query).split()
    with tempfile.NamedTemporaryFile("w", suffix=".targets") as patterns:
        patterns.write("\n".join(targets))
        patterns.flush()
        if targets:
            step("the build", folder, *_BAZEL, "build", "--noshow_progress", "--keep_going",
                 f"--target_pattern_file={patterns.name}")
    return len(targets)


def judge(folder, commit):
    """Checks a commit and describes the result; a Failure where it cannot be bisected."""
    output_of("git", "checkout", "--quiet", "--detach", commit, folder=folder)
    names = output_of("git", "diff", "--name-only", "-z", f"{commit}^", commit, folder=folder).split("\0")
    query = touched(folder, [pathlib.Path(name) for name in names if name])
    targets = build(folder, query) if query else 0
    said = step("tools/check", folder, "tools/check").splitlines()
    return f"{targets} targets built, tools/check: {said[-1]}"


def main(base):
    commits = output_of("git", "rev-list", "--reverse", "--topo-order", f"{base}..HEAD").split()
    folder, failed = scratch_folder(), 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A run that was killed has left its checkout.
    subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, capture_output=True, check=False)
    output_of("git", "worktree", "add", "--force", "--quiet", "--detach", str(folder), "HEAD")
    try:
        for commit in commits:
            subject = output_of("git", "log", "-1", "--format=%h %s", commit).strip()
            try:
                print(f"{subject}: {judge(folder, commit)}", flush=True)
            except Failure as failure:
                failed += 1
                print(f"{subject}: {failure}", flush=True)
    finally:
        subprocess.run([*_BAZEL, "shutdown"], cwd=folder, capture_output=True, check=False)
        output_of("git", "worktree", "remove", "--force", str(folder))
    print(f"{len(commits) - failed} passed, {failed} failed")
    return 1 if failed or not commits else 0


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    sys.exit(main(*sys.argv[1:]))
