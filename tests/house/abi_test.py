"""Planted changes of commpool.h: what would break a program is found, and what a program does not notice passes."""

import unittest

import abi

KEPT = """
#define COMMPOOL_VERSION_MAJOR 0
#define COMMPOOL_VERSION_MINOR 1
#define COMMPOOL_VERSION_PATCH 0
#define COMMPOOL_API __attribute__((visibility("default")))
typedef uint64_t commpool_pool;
typedef enum commpool_status {
  COMMPOOL_OK = 0, /* fine */
  COMMPOOL_NOT_FOUND = 6
} commpool_status;
typedef struct commpool_counter {
  uint64_t current;
} commpool_counter;
typedef struct commpool_statistics {
  size_t struct_bytes;
  commpool_counter live; /* blocks */
  uint64_t (*release)(int device, void* context);
} commpool_statistics;
/* Frees. */
COMMPOOL_API commpool_status commpool_free(void* pointer);
COMMPOOL_API commpool_status commpool_pool_statistics(commpool_pool pool,
                                                      commpool_statistics* statistics);
COMMPOOL_API int commpool_version(void);
"""
HIGHER = ("MINOR 1", "MINOR 2")


def changed(*replacements):
    text = KEPT
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


class KeptAbi(unittest.TestCase):

    def assert_problem(self, words, *replacements):
        """Of a header that has a higher version, too."""
        for more in [(), (HIGHER,)]:
            found = abi.problems([KEPT], changed(*replacements, *more))
            self.assertTrue(any(words in problem for problem in found), found)

    def assert_needs_a_version(self, *replacements):
        self.assertEqual(len(abi.problems([KEPT], changed(*replacements))), 1)
        self.assertIn("raise COMMPOOL_VERSION", abi.problems([KEPT], changed(*replacements))[0])
        self.assertEqual(abi.problems([KEPT], changed(*replacements, HIGHER)), [])

    def test_the_same_header_is_fine(self):
        self.assertEqual(abi.problems([KEPT], KEPT), [])

    def test_comments_names_of_parameters_and_line_breaks_bind_nobody(self):
        self.assertEqual(abi.problems([KEPT], changed(("/* Frees. */", ""), ("void* pointer)", "void*  block)"),
                                                      ("pool,\n", "pool, "))), [])

    def test_a_changed_signature_is_found(self):
        self.assert_problem("commpool_free has another signature", ("free(void* pointer", "free(const void* pointer"))
        self.assert_problem("commpool_free has another signature", ("pointer);", "pointer, int device);"))
        self.assert_problem("commpool_version has another signature", ("API int", "API uint64_t"))

    def test_a_function_that_is_gone_is_found(self):
        self.assert_problem("commpool_version is gone", ("COMMPOOL_API int commpool_version(void);", ""))

    def test_a_struct_that_is_gone_or_changed_is_found(self):
        self.assert_problem("commpool_statistics has another field in place 1", ("  commpool_counter live;", ""))
        self.assert_problem("commpool_statistics has another field in place 0", ("size_t struct", "uint32_t struct"))
        self.assert_problem("commpool_statistics has another field in place 2", ("(*release)(int", "(*release)(long"))

    def test_a_struct_inside_another_may_not_grow(self):
        self.assert_problem("commpool_counter lies in another struct", ("current;", "current;\n  uint64_t peak;"))

    def test_an_enumerator_that_changes_is_found(self):
        self.assert_problem("COMMPOOL_NOT_FOUND of commpool_status was 6 and is 7", ("FOUND = 6", "FOUND = 7"))
        self.assert_problem("COMMPOOL_NOT_FOUND of commpool_status was 6 and is None", ("NOT_FOUND", "MISSING"))

    def test_a_type_that_changes_is_found(self):
        self.assert_problem("uint64_t commpool_pool", ("uint64_t commpool_pool", "uint32_t commpool_pool"))

    def test_a_larger_struct_a_new_function_and_a_new_enumerator_need_a_version(self):
        self.assert_needs_a_version(("context);", "context);\n  uint64_t later;"))
        self.assert_needs_a_version(("COMMPOOL_API int", "COMMPOOL_API int commpool_later(void);\nCOMMPOOL_API int"))
        self.assert_needs_a_version(("NOT_FOUND = 6", "NOT_FOUND = 6,\n  COMMPOOL_LATER = 7"))

    def test_a_version_that_goes_back_is_found(self):
        self.assertIn("COMMPOOL_VERSION has gone back", abi.problems([changed(HIGHER)], KEPT))

    def test_another_major_breaks_with_what_was(self):
        gone = ("COMMPOOL_API int commpool_version(void);", "")
        self.assertEqual(abi.problems([KEPT], changed(gone, ("MAJOR 0", "MAJOR 1"))), [])

    def test_no_kept_header_is_a_problem(self):
        self.assertEqual(abi.problems([], KEPT), ["no header is kept"])
