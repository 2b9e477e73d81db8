"""A report as large as they get."""

import time

from large_model import large_model
from page_fixture import DRAWN, Page


class Large(Page):

    def test_a_large_model_shows_its_first_picture(self):
        self.open(large_model())
        self.browser.wait(DRAWN)
        seconds = self.browser.run("return performance.getEntriesByName('first picture')[0].startTime") / 1000
        print(f"\n64 ranks with 1,000,000 blocks: the first picture came after {seconds:.2f} s", flush=True)
        begin = time.monotonic()
        self.assertIn("blocks", self.search(">1000 KiB"))
        print(f"a search through all of it took {time.monotonic() - begin:.2f} s", flush=True)
