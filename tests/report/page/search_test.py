"""What a search finds, and where its hits lead."""

from page_fixture import TITLE, Page
from sample_model import sample_model


class Searches(Page):

    def test_a_name_is_found(self):
        self.open_sample()
        self.assertIn("3 pools", self.search("gradients"))
        self.browser.press("Enter")
        self.assertBecomes("return document.querySelector('#addresses-title').textContent === arguments[0]",
                           "Addresses of gradients, rank 0")

    def test_a_size_is_found(self):
        self.open_sample()
        blocks = sample_model()["ranks"][0]["pools"]
        exact = sum(size == 25 << 20 for pool in blocks for size in pool["blocks"]["bytes"])
        self.assertGreater(exact, 0)
        self.assertRegex(self.search("25 MiB"), r"^Found \d+ blocks$")
        self.browser.press("Enter")
        self.assertBecomes("return !document.getElementById('block').hidden")
        self.assertIn("25 MiB (26,214,400 bytes)", self.text("#block dl"))

    def test_a_bound_of_sizes_is_found(self):
        self.open_sample()
        wanted = sum(max(size, asked) > 40 << 20 for rank in sample_model()["ranks"] for pool in rank["pools"]
                     for size, asked in zip(pool["blocks"]["bytes"], pool["blocks"]["requested"]))
        self.assertEqual(self.search(">40MiB"), f"Found {wanted} blocks")
        self.assertEqual(self.search("> 1 TiB"), "Nothing found")

    def test_a_stack_is_found(self):
        self.open_sample()
        self.assertIn("blocks", self.search("attention.forward"))
        self.browser.click("#hits li:nth-child(5) button")
        self.assertBecomes("return !document.getElementById('block').hidden")
        self.assertIn("attention.py:88", self.text("#block pre"))

    def test_an_event_is_found(self):
        self.open_sample()
        self.assertEqual(self.search("memory for 96 mib"), "Found 1 event")
        self.browser.press("Enter")
        self.assertBecomes(TITLE + ".startsWith('Rank 2 at 1.8')")
