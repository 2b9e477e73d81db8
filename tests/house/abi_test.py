"""Planted changes of commpool.h: what a program could notice is found, and what it does not notice passes."""

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
        """Of a header of the same minor version; a higher one is free to differ, and is to be kept instead."""
        found = abi.problems(KEPT, changed(*replacements))
        self.assertTrue(any(words in problem for problem in found), found)
        self.assertTrue(all("raise the minor version" in problem for problem in found), found)
        self.assertEqual(abi.problems(changed(*replacements, HIGHER), changed(*replacements, HIGHER)), [])

    def test_the_same_header_is_fine(self):
        self.assertEqual(abi.problems(KEPT, KEPT), [])
        self.assertEqual(abi.problems(KEPT, changed(("PATCH 0", "PATCH 1"))), [])

    def test_comments_names_of_parameters_and_line_breaks_bind_nobody(self):
        self.assertEqual(abi.problems(KEPT, changed(("/* Frees. */", ""), ("void* pointer)", "void*  block)"),
                                                    ("pool,\n", "pool, "))), [])

    def test_a_changed_signature_is_found(self):
        self.assert_problem("function commpool_free was", ("free(void* pointer", "free(const void* pointer"))
        self.assert_problem("function commpool_free was", ("pointer);", "pointer, int device);"))
        self.assert_problem("function commpool_version was", ("API int", "API uint64_t"))

    def test_a_function_that_is_gone_is_found(self):
        gone = ("COMMPOOL_API int commpool_version(void);", "")
        self.assert_problem("function commpool_version was ('int', ['void']) and is not there", gone)

    def test_a_struct_that_is_gone_or_changed_is_found(self):
        self.assert_problem("struct commpool_statistics was", ("  commpool_counter live;", ""))
        self.assert_problem("struct commpool_statistics was", ("size_t struct", "uint32_t struct"))
        self.assert_problem("struct commpool_statistics was", ("(*release)(int", "(*release)(long"))
        self.assert_problem("struct commpool_counter was", ("commpool_counter {", "commpool_count {"),
                            ("} commpool_counter;", "} commpool_count;"))

    def test_a_struct_that_grows_is_found(self):
        self.assert_problem("struct commpool_counter was", ("current;", "current;\n  uint64_t peak;"))
        self.assert_problem("struct commpool_statistics was", ("context);", "context);\n  uint64_t later;"))

    def test_an_enumerator_that_changes_is_found(self):
        self.assert_problem("COMMPOOL_NOT_FOUND of commpool_status was 6 and is 7", ("FOUND = 6", "FOUND = 7"))
        self.assert_problem("COMMPOOL_NOT_FOUND of commpool_status was 6 and is not there", ("NOT_FOUND", "MISSING"))

    def test_a_type_that_changes_is_found(self):
        self.assert_problem("uint64_t commpool_pool was", ("uint64_t commpool_pool", "uint32_t commpool_pool"))

    def test_what_is_new_is_found(self):
        self.assert_problem("function commpool_later was not there and is",
                            ("COMMPOOL_API int", "COMMPOOL_API int commpool_later(void);\nCOMMPOOL_API int"))
        self.assert_problem("COMMPOOL_LATER of commpool_status was not there and is 7",
                            ("NOT_FOUND = 6", "NOT_FOUND = 6,\n  COMMPOOL_LATER = 7"))

    def test_a_kept_header_of_another_minor_version_is_found(self):
        for kept, today in ((KEPT, changed(HIGHER)), (changed(HIGHER), KEPT), (KEPT, changed(("MAJOR 0", "MAJOR 1")))):
            self.assertIn("keep that one instead", "\n".join(abi.problems(kept, today)))
