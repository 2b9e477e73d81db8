"""Which variant of a symbol a stand-in offers."""

import unittest

import make_stub

_LISTING = """
0000000000085500 g    DF .text	0000000000000090 (GLIBC_2.2.5) dlopen
0000000000085500 g    DF .text	0000000000000090  GLIBC_2.34  dlopen
00000000000f77e0  w   DF .text	0000000000000012  GLIBC_2.33  stat
00000000001db320  w   DO .bss	0000000000000008  GLIBC_2.2.5 environ
0000000000000010 g    DO .tbss	0000000000000004  GLIBC_PRIVATE errno
0000000000000010 g    DO .tbss	0000000000000004  GLIBC_2.2.5 h_errno
0000000000000000      DF *UND*	0000000000000000  GLIBC_2.3   __tls_get_addr
0000000000000000 g    DO *ABS*	0000000000000000  GLIBC_2.4   GLIBC_2.4
"""


class Symbols(unittest.TestCase):
    def test_are_of_the_newest_variant_that_the_older_system_has(self):
        symbols = make_stub.read_symbols(_LISTING, {"GLIBC": "2.28"}, "drop")
        self.assertEqual(symbols, {
            "dlopen": ("GLIBC_2.2.5", "function", 0x90),
            "environ": ("GLIBC_2.2.5", "object", 8),
            "h_errno": ("GLIBC_2.2.5", "tls_object", 4),
        })

    def test_that_came_later_are_kept_where_asked(self):
        symbols = make_stub.read_symbols(_LISTING, {"GLIBC": "2.28"}, "keep")
        self.assertEqual(symbols["stat"][0], "GLIBC_2.33")
        self.assertEqual(symbols["dlopen"][0], "GLIBC_2.2.5")

    def test_that_moved_are_of_the_library_that_the_older_system_has_them_in(self):
        symbols = make_stub.moved_symbols(_LISTING, {"GLIBC": "2.28"}, ["dl", "h_", "stat"])
        self.assertEqual(symbols, {"dlopen": ("GLIBC_2.2.5", "function", 0x90)})

    def test_are_written_with_their_versions(self):
        text = make_stub.assembly({"environ": ("GLIBC_2.2.5", "object", 8)})
        self.assertIn(".symver stub_0, environ@@GLIBC_2.2.5", text)
        self.assertIn(".size stub_0, 8", text)


if __name__ == "__main__":
    unittest.main()
