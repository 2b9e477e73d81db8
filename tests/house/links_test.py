"""Planted links: those that lead nowhere are found."""

import pathlib
import tempfile
import unittest

import links

DOCUMENT = "# One\n## Where `it` finds things\n```\n# no heading\n[no](link)\n```\n"


class Links(unittest.TestCase):

    def problems(self, text):
        with tempfile.TemporaryDirectory() as root:
            for name, content in {"tools/README.md": DOCUMENT, "README.md": text}.items():
                file = pathlib.Path(root, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            return links.problems(pathlib.Path(root))

    def test_that_lead_somewhere_are_fine(self):
        self.assertEqual(self.problems("# A\n[a](tools/README.md) [b](tools/) [c](#a) [d](https://a.b/c#d)\n"
                                       "[e](tools/README.md#where-it-finds-things) [f](tools/#one)\n"), [])

    def test_to_no_file_are_found(self):
        self.assertEqual(self.problems("see [a](tools/GONE.md)\n"), ["README.md: tools/GONE.md leads nowhere"])

    def test_to_no_heading_are_found(self):
        for link in ("tools/README.md#two", "tools/README.md#no-heading", "#one"):
            self.assertEqual(self.problems(f"# A\n[a]({link})\n"), [f"README.md: {link} has no such heading"])
