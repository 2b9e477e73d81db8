"""One process of a suite's tests: pytest over one file, with or without pools; sends lines of JSON
on stdout to tools/suites/runner.py: which test begins, and how it ended. The tests' own output goes to stderr."""

import importlib
import json
import os
import sys

import pytest
from suites import SUITES


class Recorder:
    """pytest's plugin."""

    def __init__(self, tell, wants, done, pool, put_again):
        self._tell, self._wants, self._done, self._pool, self._put_again = tell, wants, done, pool, put_again
        self._said, self._why, self._served = "", "", 0

    def _blocks(self):
        return 0 if self._pool is None else self._pool.stats().allocated_blocks.total

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self._wants(item.nodeid) and item.nodeid not in self._done]

    def pytest_collectreport(self, report):
        if not report.passed:  # a file that cannot be imported, or that skips itself
            outcome = report.outcome if report.skipped else "uncollected"
            self._tell(name=report.nodeid, outcome=outcome, reason=_reason(report), served=0)

    def pytest_runtest_logstart(self, nodeid):
        self._tell(begins=nodeid)
        self._said, self._why, self._served = "not run", "", self._blocks()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self):
        self._put_again()  # the previous test may have set its own

    def pytest_runtest_logreport(self, report):
        if self._said in ("failed", "error"):  # a part of the test has failed: keep that
            return
        if report.failed:
            self._said = "failed" if report.when == "call" else "error"
        elif hasattr(report, "wasxfail"):
            self._said = "xfailed" if report.skipped else "xpassed"
        elif report.skipped or report.when == "call":
            self._said = report.outcome
        if not report.passed:
            self._why = _reason(report)

    def pytest_runtest_logfinish(self, nodeid):
        self._tell(name=nodeid, outcome=self._said, reason=self._why, served=self._blocks() - self._served)


def _reason(report):
    """The most useful line: an error's message, or the reason of a skip."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[-1][:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else str(report.longrepr)).splitlines()
    return next((line for line in lines if line.startswith("E ")), lines[0] if lines else "")[:300]


def put_on_pool(suite, mode):
    """The pool, and a function that sets the framework on it again."""
    import commpool

    pool = commpool.Pool("others", mode=mode or suite.mode)
    return pool, suite.put(pool)


def main():
    suite, way, file = SUITES[sys.argv[1]], sys.argv[2], sys.argv[3]
    wanted = json.load(sys.stdin)
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(**what):
        lines.write(json.dumps(what) + "\n")

    framework = importlib.import_module(suite.framework)
    suite.prepare()
    pool, put_again = put_on_pool(suite, wanted["mode"]) if way == "pool" else (None, lambda: None)
    tell(versions={suite.framework: getattr(framework, "__version__", "")})
    recorder = Recorder(tell, lambda test: suite.wants(test, wanted["tests"]), set(wanted["done"]), pool, put_again)
    sys.path += [os.path.join(wanted["source"], folder) for folder in suite.path]
    # Keeps the suite's own settings, except those for its developers' command line.
    status = pytest.main([file, "-q", "--tb=short", "-o", "addopts=", "-p", "no:cacheprovider",
                          f"--rootdir={wanted['source']}", *suite.words], plugins=[recorder])
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        return int(status)
    tell(ended=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
