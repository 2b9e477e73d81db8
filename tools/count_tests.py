#!/usr/bin/env python3
"""Counts the test cases of `bazel test` runs: reads their build event files (--build_event_json_file).

usage: count_tests.py FILE...    build events, or the JUnit report of tests that ran without Bazel
Prints the reason of each skip, each failure, then one line `N passed, N failed[, N skipped]`. The status is 0 when
something passed and nothing failed. A GoogleTest binary counts case by case, any other test as one. Each attempt of a
test counts, so a second one hides no failure.
"""

import dataclasses
import json
import pathlib
import re
import sys
import textwrap
import urllib.parse
import urllib.request
import xml.etree.ElementTree

# GoogleTest puts the place of the skip on a line before its reason.
_PLACE = re.compile(r"^\S+:\d+$")
_SHOWN = 400  # characters of what a failure says; its log has the rest


@dataclasses.dataclass
class Tally:
    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)
    skips: list = dataclasses.field(default_factory=list)

    def line(self):
        skipped = f", {len(self.skips)} skipped" if self.skips else ""
        return f"{self.passed} passed, {len(self.failures)} failed{skipped}"

    def good(self):
        return self.passed > 0 and not self.failures


def _reason(element):
    lines = [line.strip() for line in (element.get("message") or element.text or "").splitlines()]
    kept = [line for line in lines if line and not _PLACE.match(line) and line != "Skipped"]
    return " ".join(kept) or "no reason given"


def count_report(tally, label, text, status):
    """Adds one test.xml; `status` is Bazel's result for the whole test."""
    try:
        cases = list(xml.etree.ElementTree.fromstring(text).iter("testcase"))
    except xml.etree.ElementTree.ParseError:
        cases = []
    failed = False
    for case in cases:
        class_name = case.get("classname")
        name = label if not class_name else f"{label} {class_name}.{case.get('name')}"
        skipped = case.find("skipped")
        failure = next(iter([*case.findall("failure"), *case.findall("error")]), None)
        if failure is not None:
            tally.failures.append(f"{name}: {textwrap.shorten(_reason(failure), _SHOWN)}")
            failed = True
        elif skipped is not None:
            tally.skips.append(f"{name}: {_reason(skipped)}")
        elif case.get("status") == "notrun":
            tally.skips.append(f"{name}: disabled in its source")
        elif status == "PASSED":
            tally.passed += 1
    if status == "PASSED" and not text:
        tally.passed += 1
    if status != "PASSED" and not failed:
        tally.failures.append(f"{label}: {status.lower().replace('_', ' ')}")


def _report_text(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml" and output.get("uri", "").startswith("file://"):
            path = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(output["uri"]).path))
            return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return ""


def _left_out(event, options):
    """Whether --test_tag_filters=-TAG,... skips a test that Bazel has configured."""
    filters = [option.split("=", 1)[1].split(",") for option in options if option.startswith("--test_tag_filters=")]
    unwanted = {word[1:] for word in (filters[-1] if filters else []) if word.startswith("-")}
    return bool(unwanted.intersection(event["configured"].get("tag", [])))


def read_events(lines):
    """What one run of `bazel test` has told so far: its tests, (label, result) of each attempt, and how it ended."""
    tests, results, end, options = set(), [], None, []
    for line in lines:
        event = json.loads(line)
        identity = event.get("id", {})
        options = event.get("optionsParsed", {}).get("explicitCmdLine", options)
        is_test = "targetConfigured" in identity and event.get("configured", {}).get("testSize")
        if is_test and not _left_out(event, options):
            tests.add(identity["targetConfigured"]["label"])
        if "testResult" in identity:
            results.append((identity["testResult"]["label"], event["testResult"]))
        end = event.get("finished", end)
    return tests, results, end


def count_events(tally, lines):
    """Adds one run of `bazel test`; a test that never ran counts as failed."""
    tests, results, end = read_events(lines)
    for label, result in sorted(results, key=lambda entry: entry[0]):
        count_report(tally, label, _report_text(result), result["status"])
    for label in sorted(tests - {label for label, _ in results}):
        tally.failures.append(f"{label}: did not build, or did not start")
    if end is None:
        tally.failures.append("Bazel stopped before its end")
    elif end.get("exitCode", {}).get("code", 0) and not tally.failures:
        tally.failures.append(f"Bazel ended with {end['exitCode']['name']}: see its messages")


def main(paths):
    tally = Tally()
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        if text.startswith("<"):
            count_report(tally, pathlib.Path(path).stem, text, "PASSED")  # the report has its failures
        else:
            count_events(tally, text.splitlines())
    for skip in tally.skips:
        print("skipped:", skip)
    for failure in tally.failures:
        print("failed:", failure)
    print(tally.line())
    return 0 if tally.good() else 1


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(__doc__))
    sys.exit(main(sys.argv[1:]))
