"""Runs the unittest cases of some files and writes a report for Bazel.

usage: python_test_runner.py FILE... -- [ARGUMENT...]
Files called *_test.py hold the cases; the others are modules that they may import by name.
"""

import importlib
import os
import pathlib
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree


class ReportedResult(unittest.TextTestResult):
    """Notes each case as an element of a JUnit report."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.suite = ElementTree.Element("testsuite")

    def startTest(self, test):
        super().startTest(test)
        self._start = time.monotonic()
        self._case = ElementTree.SubElement(self.suite, "testcase", name=test._testMethodName,
                                            classname=type(test).__name__, status="run")

    def stopTest(self, test):
        self._case.set("time", f"{time.monotonic() - self._start:.3f}")
        super().stopTest(test)

    def _note(self, test, kind, message):
        # A failure before a case begins, in a class's or a module's setUp, counts as a case of its own.
        case = self._case if isinstance(test, unittest.TestCase) else ElementTree.SubElement(
            self.suite, "testcase", name=str(test), classname="", status="run", time="0")
        ElementTree.SubElement(case, kind, message=message)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._note(test, "failure", str(error[1]))

    def addError(self, test, error):
        super().addError(test, error)
        self._note(test, "error", str(error[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self._note(test, "failure", f"{subtest}: {error[1]}")


def main(arguments):
    split = arguments.index("--")
    sys.argv = arguments[split:]
    files = [pathlib.Path(file) for file in arguments[:split]]
    sys.path[:0] = sorted({str(file.parent) for file in files})
    suite = unittest.TestSuite()
    for file in files:
        if file.stem.endswith("_test"):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(file.stem)))
    result = unittest.TextTestRunner(verbosity=2, resultclass=ReportedResult).run(suite)
    if "XML_OUTPUT_FILE" in os.environ:
        root = ElementTree.Element("testsuites")
        root.append(result.suite)
        ElementTree.ElementTree(root).write(os.environ["XML_OUTPUT_FILE"], encoding="utf-8")
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
