"""Each exported function is there for a program, and include/commpool/functions.md names it."""

import pathlib
import sys
import unittest

import reference
import symbols

HEADER, README = sys.argv[1], sys.argv[2]
TABLE = """
# Reference
| `commpool_elsewhere` | another table |
## Who needs what
| function | program |
|---|---|
| `commpool_free` | all |
| `commpool_scope_begin`, `commpool_scope_end` | a router |
## Threads
| `commpool_later` | another table |
"""
FUNCTIONS = {"commpool_free", "commpool_scope_begin", "commpool_scope_end"}


class Reference(unittest.TestCase):

    def test_names_a_program_for_each_exported_function(self):
        functions = symbols.declared(pathlib.Path(HEADER).read_text())
        self.assertGreater(len(functions), 40)
        found = reference.problems(pathlib.Path(README).read_text(), functions)
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_a_table_that_has_all_is_fine(self):
        self.assertEqual(reference.problems(TABLE, FUNCTIONS), [])

    def test_a_function_without_a_row_is_found(self):
        self.assertEqual(reference.problems(TABLE, FUNCTIONS | {"commpool_trim"}),
                         ["commpool_trim is exported, and the table names no program that needs it"])

    def test_a_row_of_what_is_not_exported_is_found(self):
        self.assertEqual(reference.problems(TABLE, FUNCTIONS - {"commpool_scope_end"}),
                         ["commpool_scope_end stands in the table, and is not exported"])

    def test_a_function_with_two_rows_or_no_program_is_found(self):
        twice = TABLE.replace("| all |", "| all |\n| `commpool_free` |  |")
        self.assertEqual(reference.problems(twice, FUNCTIONS),
                         ["commpool_free stands in the table twice", "commpool_free: no program is named"])
