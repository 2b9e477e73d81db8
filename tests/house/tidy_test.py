"""Planted violations: each rule of tidiness catches its own, and what only looks like one passes."""

import unittest

import functions
import planted
import tidy


class Tidy(planted.PlantedTest):

    def problems(self, path, text):
        return [line for line in tidy.problems(self.planted({path: text})) if not line.endswith("is missing")]

    def assert_problem(self, words, path, text):
        self.assert_one(words, self.problems(path, text))

    def assert_fine(self, path, text):
        self.assertEqual(self.problems(path, text), [])

    def test_a_long_file_is_found(self):
        self.assert_fine("src/a.cc", "\n" * 500)
        self.assert_problem("501 lines", "src/a.cc", "\n" * 501)
        self.assert_problem("501 lines", "src/library/pool/BUILD", "\n" * 501)

    def test_comments_of_a_public_header_do_not_count(self):
        guard = "#ifndef COMMPOOL_A_H_\n#define COMMPOOL_A_H_\n"
        self.assert_fine("include/commpool/a.h", guard + "// words\n" * 600 + "#endif\n")
        self.assert_problem("501 lines", "include/commpool/a.h", guard + "int a;\n" * 498 + "#endif\n")

    def test_a_long_page_is_found(self):
        self.assert_fine("tools/README.md", "\n" * 85)
        self.assert_fine("tools/reference.md", "\n" * 300)
        self.assert_fine("src/library/reference.md", "\n" * 150)
        self.assert_problem("86 lines", "tools/README.md", "\n" * 86)

    def test_a_long_line_is_found(self):
        self.assert_fine("src/a.cc", "//" + "x" * 118 + "\n")
        self.assert_problem("121 columns", "tools/a.py", "#" + "x" * 120 + "\n")
        self.assert_fine("README.md", "x" * 300 + "\n")

    def test_a_long_function_is_found(self):
        body = "  f();\n" * 67
        self.assert_fine("src/a.cc", "void f() {\n" + body + "}\n")
        self.assert_problem("f has 70 lines", "src/a.cc", "void f() {\n" + body + "  f();\n}\n")
        self.assert_problem("g has 70 lines", "tools/a.py", "def g():\n" + "    g()\n" * 69)
        self.assert_problem("h has 70 lines", "tools/a", "#!/bin/bash\nh() {\n" + "  h\n" * 68 + "}\n")

    def test_a_header_without_a_guard_is_found(self):
        self.assert_fine("src/library/base/a.h", "#pragma once\n")
        self.assert_fine("include/commpool/a.h", "#ifndef COMMPOOL_A_H_\n#define COMMPOOL_A_H_\n#endif\n")
        self.assert_problem("has no #pragma once", "src/library/base/a.h", "#ifndef A_H_\n#define A_H_\n")
        self.assert_problem("has no #ifndef COMMPOOL_A_H_", "include/commpool/a.h", "#pragma once\n")

    def test_words_that_ask_for_later_work_are_found(self):
        self.assert_problem("later work", "src/a.cc", "// TO" + "DO: more\n")
        self.assert_problem("later work", "README.md", "A HA" + "CK.\n")
        self.assert_fine("tools/a", "mktemp a.XXXXXX # todo list\n")

    def test_places_of_somebodys_machine_are_found(self):
        self.assert_problem("outside", "src/a.cc", '// see "/' + 'home/somebody"\n')
        self.assert_problem("outside", "README.md", "in .." + "/shared/a\n")
        self.assert_fine("src/a.cc", "// src/work/a, //src/root:a and /usr/include\n")

    def test_hosts_of_registries_are_found(self):
        self.assert_problem("registry", "tools/a.sh", "fetch pypi" + ".org\n")

    def test_a_stray_entry_of_the_top_level_is_found(self):
        self.assert_problem("top level", "notes.txt", "")
        self.assert_fine("bazel-out/notes.txt", "")

    def test_a_missing_page_is_found(self):
        self.assertIn("src/README.md: is missing", tidy.problems(self.planted({})))


class FunctionLengths(unittest.TestCase):

    def test_methods_count_and_classes_do_not(self):
        text = 'namespace a {\nclass MACRO("m") B : public C {\n public:\n  int D() const {\n    E();\n  }\n};\n}\n'
        self.assertEqual(functions.cpp_functions(text), [("D", 3)])

    def test_a_lambda_counts_with_its_function(self):
        text = "int f(int x) {\n  auto g = [](int y) {\n    return y;\n  };\n  return g(x);\n}\n"
        self.assertEqual(functions.cpp_functions(text), [("f", 6)])

    def test_a_signature_over_several_lines_counts(self):
        self.assertEqual(functions.cpp_functions("int x;\n\nint f(int a,\n      int b) {\n}\n"), [("f", 3)])

    def test_braces_in_strings_and_comments_are_none(self):
        text = 'void f() {\n  g("}", \'}\', R"(}})");  // }\n  /* } */\n  h(1\'000);\n}\n'
        self.assertEqual(functions.cpp_functions(text), [("f", 5)])

    def test_tables_are_no_functions(self):
        self.assertEqual(functions.cpp_functions("int table[] = {\n  1,\n};\nstruct A {\n  int b = 1;\n};\n"), [])
