"""Which machine a binary is for, and which binutils take it."""

import pathlib
import platform
import sys
import tempfile
import unittest

import portability


class Machines(unittest.TestCase):
    def test_are_told_by_the_file(self):
        self.assertEqual(portability.machine(sys.executable), platform.machine())
        self.assertEqual(portability.tool("strip", sys.executable), "strip")

    def test_of_another_kind_need_the_cross_compilers_tools(self):
        other = {"x86_64": ("aarch64", 183), "aarch64": ("x86_64", 62)}[platform.machine()]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "library.so")
            file.write_bytes(b"\x7fELF" + bytes(14) + other[1].to_bytes(2, "little") + bytes(44))
            self.assertEqual(portability.machine(file), other[0])
            self.assertEqual(portability.tool("strip", file), f"{other[0]}-linux-gnu-strip")


if __name__ == "__main__":
    unittest.main()
