"""tools/count_tests.py counts cases, reasons of skips, and tests that never ran."""

import io
import json
import pathlib
import tempfile
import unittest
from contextlib import redirect_stdout

import count_tests

GTEST = """<testsuites><testsuite name="A">
<testcase name="Passes" classname="A" status="run" result="completed"/>
<testcase name="Skips" classname="A" status="run" result="skipped">
  <skipped message="tests/a_test.cc:2&#x0A;needs two GPUs"/></testcase>
<testcase name="DISABLED_Off" classname="A" status="notrun" result="suppressed"/>
{}</testsuite></testsuites>"""
FAILURE = '<testcase name="Fails" classname="A" status="run"><failure message="1 is not 2"/></testcase>'
SCRIPT = '<testsuites><testsuite><testcase name="tests/s_test" status="run"/></testsuite></testsuites>'


class CountTests(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_of(self, *results, asked=(), end={"exitCode": {"name": "SUCCESS"}}):
        """The events of one `bazel test`; a result is (label, status, report)."""
        events = [{"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"}}
                  for label in [*asked, *(label for label, _, _ in results)]]
        for number, (label, status, report) in enumerate(results):
            outputs = []
            if report is not None:
                path = self.folder / f"{number}.xml"
                path.write_text(report)
                outputs = [{"name": "test.xml", "uri": path.as_uri()}]
            events.append({"id": {"testResult": {"label": label, "run": 1, "attempt": 1}},
                           "testResult": {"status": status, "testActionOutput": outputs}})
        if end:
            events.append({"id": {"buildFinished": {}}, "finished": end})
        return [json.dumps(event) for event in events]

    def tally(self, *results, **options):
        tally = count_tests.Tally()
        count_tests.count_events(tally, self.run_of(*results, **options))
        return tally

    def test_cases_are_counted_one_by_one(self):
        tally = self.tally(("//tests:a_test", "PASSED", GTEST.format("")), ("//tests:s_test", "PASSED", SCRIPT))
        self.assertEqual(tally.line(), "2 passed, 0 failed, 2 skipped")
        self.assertEqual(tally.skips, ["//tests:a_test A.Skips: needs two GPUs",
                                       "//tests:a_test A.DISABLED_Off: disabled in its source"])
        self.assertTrue(tally.good())

    def test_what_a_tag_leaves_out_is_not_missed(self):
        lines = self.run_of(("//tests:s_test", "PASSED", SCRIPT), asked=("//tests:t_test",))
        event = json.loads(lines[0])
        event["configured"]["tag"] = ["large", "torch"]
        for options, line in ((["--test_tag_filters=-slow,-torch"], "1 passed, 0 failed"),
                              (["--test_tag_filters=torch"], "1 passed, 1 failed")):
            tally = count_tests.Tally()
            started = json.dumps({"id": {"optionsParsed": {}}, "optionsParsed": {"explicitCmdLine": options}})
            count_tests.count_events(tally, [started, json.dumps(event), *lines[1:]])
            self.assertEqual(tally.line(), line)

    def test_no_skip_is_no_word_of_skips(self):
        self.assertEqual(self.tally(("//tests:s_test", "PASSED", SCRIPT)).line(), "1 passed, 0 failed")

    def test_a_failed_case_is_named(self):
        tally = self.tally(("//tests:a_test", "FAILED", GTEST.format(FAILURE)))
        self.assertEqual(tally.failures, ["//tests:a_test A.Fails: 1 is not 2"])
        self.assertFalse(tally.good())

    def test_a_crash_fails_though_no_case_did(self):
        for report in [GTEST.format(""), "", "<cut off", None]:
            tally = self.tally(("//tests:a_test", "TIMEOUT", report))
            self.assertEqual((tally.passed, tally.failures), (0, ["//tests:a_test: timeout"]))

    def test_a_second_attempt_hides_no_failure(self):
        tally = self.tally(("//tests:a_test", "FAILED", GTEST.format(FAILURE)),
                           ("//tests:a_test", "PASSED", GTEST.format("")))
        self.assertEqual(tally.failures, ["//tests:a_test A.Fails: 1 is not 2"])
        self.assertFalse(tally.good())

    def test_a_test_that_did_not_build_fails(self):
        tally = self.tally(("//tests:s_test", "PASSED", SCRIPT), asked=["//tests:b_test"])
        self.assertEqual(tally.line(), "1 passed, 1 failed")
        self.assertIn("//tests:b_test", tally.failures[0])

    def test_a_run_that_broke_off_fails(self):
        self.assertFalse(self.tally(("//tests:s_test", "PASSED", SCRIPT), end=None).good())

    def test_a_target_beside_the_tests_that_did_not_build_fails(self):
        tally = self.tally(("//tests:s_test", "PASSED", SCRIPT), end={"exitCode": {"name": "BUILD_FAILURE", "code": 1}})
        self.assertEqual(tally.failures, ["Bazel ended with BUILD_FAILURE: see its messages"])

    def test_no_test_at_all_is_no_success(self):
        self.assertFalse(self.tally().good())

    def main(self, *texts):
        """The status and the lines of a run over files with these texts."""
        paths = [self.folder / f"file{number}" for number in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text)
        output = io.StringIO()
        with redirect_stdout(output):
            status = count_tests.main(paths)
        return status, output.getvalue().splitlines()

    def test_a_report_counts_without_bazel(self):
        self.assertEqual(self.main(GTEST.format("")), (0, [
            "skipped: file0 A.Skips: needs two GPUs", "skipped: file0 A.DISABLED_Off: disabled in its source",
            "1 passed, 0 failed, 2 skipped"]))
        status, lines = self.main(GTEST.format(FAILURE))
        self.assertEqual((status, *lines[-2:]),
                         (1, "failed: file0 A.Fails: 1 is not 2", "1 passed, 1 failed, 2 skipped"))

    def test_a_report_that_was_never_written_fails(self):
        self.assertEqual(self.main("")[0], 1)

    def test_events_and_reports_are_summed(self):
        events = "\n".join(self.run_of(("//tests:s_test", "PASSED", SCRIPT)))
        self.assertEqual(self.main(events, GTEST.format(""))[1][-1], "2 passed, 0 failed, 2 skipped")

    def test_several_runs_are_summed_and_the_sum_is_last(self):
        events = "\n".join(self.run_of(("//tests:a_test", "PASSED", GTEST.format(""))))
        status, lines = self.main(events, events)
        self.assertEqual((status, lines[-1]), (0, "2 passed, 0 failed, 4 skipped"))
