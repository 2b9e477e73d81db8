"""What a test over unittest cases reports: each case, and why a class of them could not begin."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

_RUNNER = pathlib.Path("tools/bazel/python_test_runner.py").resolve()  # below the root of Bazel's runfiles
_CASES = """
import sys
import unittest

class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError("a rank ended")

    def test_never_runs(self):
        pass

class Skipped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("no such device")

    def test_never_runs(self):
        pass

class Whole(unittest.TestCase):
    def test_arguments(self):
        self.assertEqual(sys.argv[1:], ["one", "two"])

    def test_fails(self):
        self.fail("on purpose")
"""


class Runner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cases, report = pathlib.Path(folder, "some_test.py"), pathlib.Path(folder, "report.xml")
            cases.write_text(_CASES, encoding="utf-8")
            cls.run_ = subprocess.run([sys.executable, "-B", _RUNNER, cases, "--", "one", "two"], capture_output=True,
                                      text=True, env={**os.environ, "XML_OUTPUT_FILE": str(report)}, check=False)
            cls.cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []

    def said(self, name):
        """(kind, message) of a case in the report; None where it passed."""
        found = next(case for case in self.cases if case.get("name").startswith(name))
        return next(((element.tag, element.get("message")) for element in found), None)

    def test_tells_why_a_class_could_not_begin(self):
        self.assertEqual(self.said("setUpClass (some_test.Broken)"), ("error", "a rank ended"), self.run_.stderr)
        self.assertEqual(self.said("setUpClass (some_test.Skipped)"), ("skipped", "no such device"))
        self.assertIn("ValueError: a rank ended", self.run_.stderr)

    def test_tells_of_each_case(self):
        self.assertIsNone(self.said("test_arguments"), self.run_.stderr)
        self.assertEqual(self.said("test_fails"), ("failure", "on purpose"))
        self.assertEqual(len(self.cases), 4)

    def test_fails_where_a_case_does(self):
        self.assertEqual(self.run_.returncode, 1)
