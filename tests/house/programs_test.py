"""Clang takes every test, tool and example, and finds no broken promise about locks there.

Run by tools/check --programs, outside of Bazel, as analysis_test.py is.
"""

import unittest

import analysis
import tree


@unittest.skipUnless(analysis.compiler(), "there is no clang++: tools/setup --checks installs it")
@unittest.skipIf(analysis.missing_header(), f"there is no {analysis.missing_header()}: run tools/setup")
class Programs(unittest.TestCase):

    def test_keep_their_promises(self):
        programs = analysis.programs(tree.workspace())
        self.assertGreater(len(programs), 400)
        found = analysis.problems(tree.workspace(), programs, kept=analysis.kept_verdicts(tree.workspace()),
                                  common=analysis.COMMON_HEADERS)
        self.assertFalse(found, "\n" + "\n".join(found))
