"""What is code and what is a comment, and which files a change touches, in planted checkouts."""

import pathlib

import count_code
import planted


class CountCode(planted.PlantedTest):

    def count(self, files):
        return count_code.Count(self.planted(files))

    def lines(self, path, text):
        return sum(self.count({path: text}).code.values())

    def test_blank_lines_and_comments_are_no_code(self):
        self.assertEqual(self.lines("src/a.cc", "// a\n\nint a;  // b\n/* c\n d */\nint e; /* f\n*/ int g;\n"), 3)

    def test_comments_in_strings_are_code(self):
        self.assertEqual(self.lines("src/a.cc", 'f("// a");\nf(R"(/*)");\nf("*/");\n'), 3)

    def test_docstrings_are_comments_and_other_strings_code(self):
        text = '#!/usr/bin/python3\n"""Of a module.\n\nMore."""\n\ndef f():\n    """Of f."""\n    return """a\nb"""\n'
        self.assertEqual(self.lines("src/a.py", text), 3)

    def test_folders_of_src_count_with_what_lies_below_them(self):
        count = self.count({"src/library/pool/a.h": "int a;\n", "src/library/pool/b/c/d.inc": "A(d)\n",
                            "src/library/base/i.h": "int i;\n", "src/emulator/e.c": "int e;\n",
                            "src/library/pool/BUILD": "f\n", "src/library/pool/README.md": "g\n",
                            "tools/h.cc": "int h;\n"})
        self.assertEqual(count.code, {"src/library/base": 1, "src/library/pool": 2, "src/emulator": 1})
        self.assertEqual(count.library(), 3)
        self.assertIn("     2 src/library/pool\n", count.report())

    def test_a_file_whose_code_names_the_example_is_touched(self):
        count = self.count({"src/a.cc": "int held_bytes;\n", "include/b.h": "// held_bytes\n",
                            "tools/c/BUILD": 'name = "advise.cc"\n', "tests/d.cc": "int held_bytes;\n",
                            "tools/results.jsonl": '"held_bytes"\n', "src/e.py": '"""held_bytes"""\n'})
        self.assertEqual(count.touched["a statistic"], [pathlib.Path("src/a.cc")])
        self.assertEqual(count.touched["a subcommand"], [pathlib.Path("tools/c/BUILD")])
        self.assertIn("     1 files name a statistic: held_bytes\n         src/a.cc\n", count.report(files=True))
