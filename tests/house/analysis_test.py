"""The sources keep what their lock annotations promise, and the analysis finds each kind of broken promise.

Run by tools/check, outside of Bazel: it needs Clang, and headers where tools/setup has put them.
"""

import os
import unittest
import unittest.mock

import analysis
import planted
import tree
import verdicts

HEADER = """#pragma once
#include "src/library/base/mutex.h"
namespace commpool::internal {
struct Account {
  void Add(int bytes);
  void AddLocked(int bytes) COMMPOOL_REQUIRES(mutex);
  Mutex mutex{LockRank::kLeaf};
  int bytes COMMPOOL_GUARDED_BY(mutex) = 0;
};
"""
SOURCE = '#include "src/library/pool/account.h"\nnamespace commpool::internal {\n'


class Sources(unittest.TestCase):

    def test_every_one_that_sees_an_annotation_is_analysed(self):
        sources = analysis.annotated_sources(tree.workspace())
        self.assertIn("src/library/base/mutex.cc", sources)
        self.assertIn("src/library/stream/fence_table.cc", sources)  # by way of its header
        self.assertNotIn("src/library/base/bytes.cc", sources)
        self.assertGreater(len(sources), 20)

    def test_of_tests_and_tools_are_analysed_without_annotations_too(self):
        programs = analysis.programs(tree.workspace())
        self.assertIn("tests/base/bytes_test.cc", programs)
        self.assertIn("tools/cli/main.cc", programs)
        self.assertNotIn("tools/bench/torch_allocator.cc", programs)  # it includes PyTorch's headers


@unittest.skipUnless(analysis.compiler(), "there is no clang++: tools/setup --checks installs it")
@unittest.skipIf(analysis.missing_header(), f"there is no {analysis.missing_header()}: run tools/setup")
class Analysis(planted.PlantedTest):

    def setUp(self):
        headers = (analysis.ANNOTATIONS, "src/library/base/check.h")
        self.root = self.planted({header: tree.read(tree.workspace(), header) for header in headers})
        self.write("src/library/pool/account.h", HEADER + "}\n")
        self.write("src/library/pool/other.cc", "int f() { return 1 +; }\n")  # sees no annotation

    def write(self, name, text):
        planted.write(self.root, {name: text})
        os.utime(self.root / name, (0, 0))

    def problems(self, functions, **how):
        self.write("src/library/pool/account.cc", SOURCE + functions + "}\n")
        return analysis.problems(self.root, analysis.annotated_sources(self.root), **how)

    def assert_problem(self, words, functions, **how):
        self.assert_one(words, self.problems(functions, **how))

    def test_a_kept_promise_is_fine(self):
        self.assertEqual(self.problems("void Account::Add(int more) { MutexLock lock(mutex); AddLocked(more); }\n"
                                       "void Account::AddLocked(int more) { bytes += more; }\n"), [])

    def test_an_unguarded_use_is_found(self):
        self.assert_problem("requires holding mutex 'mutex'", "void Account::Add(int more) { bytes += more; }\n")

    def test_a_call_without_the_lock_is_found(self):
        self.assert_problem("requires holding mutex 'mutex'", "void Account::Add(int more) { AddLocked(more); }\n")

    def test_a_lock_that_is_not_released_is_found(self):
        self.assert_problem("still held at the end", "void Account::Add(int) { mutex.Lock(); }\n")

    def test_a_source_that_does_not_compile_is_found(self):
        self.assert_problem("error", "void Account::Missing() {}\n")

    def test_a_broken_promise_is_found_beside_headers_that_are_read_once_for_all(self):
        common = ['"src/library/pool/account.h"', '"src/library/base/mutex.h"']
        self.assertEqual(self.problems("void Account::AddLocked(int) {}\n", common=common), [])
        self.assert_problem("requires holding mutex 'mutex'", "void Account::Add(int) { bytes = 0; }\n", common=common)
        zero = "inline void Zero(Account& account) { account.bytes = 0; }\n}\n"
        self.write("src/library/pool/account.h", HEADER + zero)
        self.assert_problem("requires holding mutex", "", common=common)

    def test_what_passed_is_not_read_again_and_what_broke_a_promise_is(self):
        def kept():
            return verdicts.Verdicts(self.root / "kept", self.root)
        for _ in range(2):
            self.assert_problem("requires holding", "void Account::Add(int) { bytes = 0; }\n", kept=kept())
        self.assertEqual(self.problems("", kept=kept()), [])
        with unittest.mock.patch("analysis._run", side_effect=AssertionError):
            self.assertEqual(self.problems("", kept=kept()), [])
        self.write("src/library/pool/account.h", HEADER)
        self.assert_problem("error: expected '}'", "", kept=kept())

    def test_the_library_keeps_its_promises(self):
        found = analysis.problems(tree.workspace(), analysis.annotated_sources(tree.workspace()),
                                  kept=analysis.kept_verdicts(tree.workspace()))
        self.assertFalse(found, "\n" + "\n".join(found))
