"""The sources keep what their lock annotations promise, and the analysis finds each kind of broken promise.

Run by tools/check, outside of Bazel: it needs Clang, and headers where tools/setup has put them.
"""

import pathlib
import shutil
import tempfile
import unittest

import analysis
import tree

HEADER = """#include "src/base/mutex.h"
namespace commpool::internal {
struct Account {
  void Add(int bytes);
  void AddLocked(int bytes) COMMPOOL_REQUIRES(mutex);
  Mutex mutex{LockRank::kLeaf};
  int bytes COMMPOOL_GUARDED_BY(mutex) = 0;
};
"""
SOURCE = '#include "src/pool/account.h"\nnamespace commpool::internal {\n'


class Sources(unittest.TestCase):

    def test_every_one_that_sees_an_annotation_is_analysed(self):
        sources = analysis.annotated_sources(tree.workspace())
        self.assertIn("src/base/mutex.cc", sources)
        self.assertIn("src/stream/fence_table.cc", sources)  # by way of its header
        self.assertNotIn("src/base/bytes.cc", sources)
        self.assertGreater(len(sources), 20)

    def test_of_tests_and_tools_are_analysed_without_annotations_too(self):
        programs = analysis.programs(tree.workspace())
        self.assertIn("tests/base/bytes_test.cc", programs)
        self.assertIn("tools/cli/main.cc", programs)
        self.assertNotIn("tools/bench/torch_allocator.cc", programs)  # it includes PyTorch's headers


@unittest.skipUnless(analysis.compiler(), "there is no clang++: tools/setup --checks installs it")
@unittest.skipIf(analysis.missing_header(), f"there is no {analysis.missing_header()}: run tools/setup")
class Analysis(unittest.TestCase):

    def problems(self, functions):
        with tempfile.TemporaryDirectory() as root:
            for name in ["src/base", "src/pool"]:
                pathlib.Path(root, name).mkdir(parents=True)
            shutil.copy(tree.workspace() / analysis.ANNOTATIONS, pathlib.Path(root, analysis.ANNOTATIONS))
            pathlib.Path(root, "src/pool/account.h").write_text(HEADER + "}\n")
            pathlib.Path(root, "src/pool/account.cc").write_text(SOURCE + functions + "}\n")
            pathlib.Path(root, "src/pool/other.cc").write_text("int f() { return 1 +; }\n")  # sees no annotation
            return analysis.problems(root, analysis.annotated_sources(root))

    def assert_problem(self, words, functions):
        found = self.problems(functions)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

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

    def test_the_library_keeps_its_promises(self):
        found = analysis.problems(tree.workspace(), analysis.annotated_sources(tree.workspace()))
        self.assertFalse(found, "\n" + "\n".join(found))
