"""Every source is formatted, and one that is not is found. Run by tools/check: it needs clang-format."""

import unittest

import formatting
import planted
import tree


@unittest.skipUnless(formatting.program(),
                     f"there is no clang-format {formatting.VERSION}: tools/setup --checks installs it")
class Formatting(planted.PlantedTest):

    def problems(self, path, text):
        style = tree.read(tree.workspace(), ".clang-format")
        return formatting.problems(self.planted({".clang-format": style, path: text}))

    def test_a_formatted_source_is_fine(self):
        self.assertEqual(self.problems("src/a.cc", "int* F(int a) { return nullptr; }\n"), [])

    def test_a_line_that_no_formatter_passed_is_found(self):
        for suffix in ["h", "cc", "c", "cu", "inc"]:
            self.assertEqual(self.problems(f"src/a.{suffix}", "int a;\nint  *b;\n"),
                             [f"src/a.{suffix}:2: clang-format writes this otherwise"])

    def test_the_repositorys_own_style_counts(self):
        long = "int F(" + ", ".join(f"int argument{number}" for number in range(6)) + ");\n"
        self.assertGreater(len(long), 80)
        self.assertEqual(self.problems("src/a.h", long), [])

    def test_every_source_is_formatted(self):
        self.assertGreater(len(formatting.sources(tree.workspace())), 500)
        found = formatting.problems(tree.workspace())
        self.assertFalse(found, "\n" + "\n".join(found))
