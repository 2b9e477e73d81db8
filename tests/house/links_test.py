"""Planted links: those that lead nowhere are found."""

import links
import planted

DOCUMENT = "# One\n## Where `it` finds things\n```\n# no heading\n[no](link)\n```\n"


class Links(planted.PlantedTest):

    def problems(self, text):
        return links.problems(self.planted({"tools/README.md": DOCUMENT, "README.md": text}))

    def test_that_lead_somewhere_are_fine(self):
        self.assertEqual(self.problems("# A\n[a](tools/README.md) [b](tools/) [c](#a) [d](https://a.b/c#d)\n"
                                       "[e](tools/README.md#where-it-finds-things) [f](tools/#one)\n"), [])

    def test_to_no_file_are_found(self):
        self.assertEqual(self.problems("see [a](tools/GONE.md)\n"), ["README.md: tools/GONE.md leads nowhere"])

    def test_to_no_heading_are_found(self):
        for link in ("tools/README.md#two", "tools/README.md#no-heading", "#one"):
            self.assertEqual(self.problems(f"# A\n[a]({link})\n"), [f"README.md: {link} has no such heading"])
