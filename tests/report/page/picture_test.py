"""What the page shows of an ordinary report."""

import os
import pathlib

from page_fixture import SPAN, TITLE, Page, SamplePage
from sample_model import FINDINGS
from small_png import small_png

_PICTURE_VARIABLE = "COMMPOOL_PAGE_PICTURE"


class Pictures(SamplePage):

    def test_all_ranks_stand_one_under_the_other(self):
        names = self.browser.run("return [...document.querySelectorAll('.names .rank')].map(name => name.textContent)")
        self.assertIn("Rank 0 node0 · pid 4711 · train.py", names[0])
        self.assertGreater(len(names), 1)
        self.assertIn("rank 3 left no recording", self.text("#notes"))

    def test_something_is_drawn_in_the_colour_of_allocated_memory(self):
        count = self.browser.run("""
            const canvas = document.querySelector("#rows canvas");
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            let count = 0;
            for (let at = 0; at < data.length; at += 4) {
              count += data[at] === 0 && data[at + 1] === 0x72 && data[at + 2] === 0xb2;
            }
            return count;""")
        self.assertGreater(count, 1000)

    def test_the_cursor_moves_the_map_and_the_values(self):
        self.open_sample(difference=None)
        before = self.text("#free-memory")
        self.browser.hover("#rows canvas", 300, 0)
        self.assertBecomes("return document.querySelector('#free-memory').textContent !== arguments[0]", before)
        self.assertIn("Rank 0 at", self.text("#cursor-title"))

    def test_free_memory_is_explained(self):
        self.assertRegex(self.text("#free-memory"), r"free in [\d,]+ gaps?; the largest is [\d.]+ \w+")

    def test_a_pool_that_is_asleep_says_so(self):
        self.search("weights asleep")
        self.browser.press("Enter")
        self.assertBecomes("return document.getElementById('free-memory').textContent.startsWith('asleep since')")
        self.assertIn("weights (asleep)", self.text("#cursor table"))

    def test_rows_of_one_pool_can_be_shown_alone(self):
        self.browser.run("const filter = document.getElementById('pool-filter'); filter.value = 'gradients';"
                         "filter.dispatchEvent(new Event('change'))")
        self.assertBecomes("return [...document.querySelectorAll('.names .pool')].every("
                           "row => /^rank [012]/.test(row.textContent))")
        self.assertBecomes("return document.querySelectorAll('.names .rank').length === 0")

    def test_the_peak_says_who_holds_what(self):
        self.assertIn("weights.py:9 load", self.text("#peak table"))
        self.assertIn("Mlp.forward", self.text("#peak table"))

    def test_a_budget_is_shown_beside_what_was_used(self):
        for text in ("step", "301 MiB", "512 MiB", "no limit"):
            self.assertIn(text, self.text("#budgets table"))

    def test_a_block_that_is_clicked_tells_its_stack(self):
        self.open_sample(difference=None)
        self.browser.hover("#map canvas", 0, 0)
        self.browser.run("document.getElementById('map').focus()")
        self.browser.press("ArrowRight")
        self.assertBecomes("return !document.getElementById('block').hidden")
        self.assertIn("train.py:120 step", self.text("#block pre"))
        self.assertIn("bytes", self.text("#block dl"))

    def test_the_license_of_d3_is_in_the_page(self):
        self.browser.click("#show-about")
        self.assertBecomes("return document.getElementById('about').open")
        self.assertIn("Mike Bostock", self.text("#about pre"))
        self.browser.press("Escape")

    def test_a_click_puts_the_cursor_there_and_chooses_the_pool(self):
        self.resize(1200, 840)
        self.open_sample(difference=None)
        self.browser.click("#rows canvas", 82, -75)
        self.assertBecomes(TITLE + ".startsWith('Rank 0 at 2.8')")
        self.assertEqual(self.text("#addresses-title"), "Addresses of activations, rank 0")

    def test_the_picture_of_the_documents_is_one(self):
        """A variable names the file to write."""
        self.resize(1200, 840)
        self.open_sample(findings=FINDINGS[:1])
        self.assertBecomes(TITLE + ".startsWith('Rank 2 at 1.8')")
        self.assertBecomes("return document.querySelectorAll('button.mark').length > 0")
        picture = self.browser.picture()
        self.assertTrue(picture.startswith(b"\x89PNG"))
        if _PICTURE_VARIABLE in os.environ:
            pathlib.Path(os.environ[_PICTURE_VARIABLE]).write_bytes(small_png(picture))


class Differences(SamplePage):

    def test_the_difference_is_marked_on_both_ranks(self):
        marks = self.browser.wait("const marks = [...document.querySelectorAll('.mark')].map(mark => mark.textContent);"
                                  "return marks.length === 2 && marks")
        self.assertEqual(marks, ["≠ call 17: allocate 26,214,400 bytes", "≠ call 17: allocate 50,331,648 bytes"])
        self.assertIn("call 17 of pool gradients", self.text("#difference"))

    def test_its_link_goes_there(self):
        self.browser.click("#difference li:nth-child(2) button")
        self.assertBecomes(TITLE + ".startsWith('Rank 1 at 2.69')")
        self.assertNotEqual(self.browser.run(SPAN), "0.000 s – 4.500 s")


class Looks(Page):

    def emulate(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self.browser.devtools("Emulation.setEmulatedMedia", {"features": features})

    def test_the_details_need_no_scrolling_to_the_side(self):
        self.resize(1280, 720)
        self.open_sample()
        self.assertBecomes("const all = document.querySelector('aside'); return all.scrollWidth <= all.clientWidth")

    def surface(self):
        return self.browser.run("return getComputedStyle(document.body).backgroundColor")

    def test_dark_and_light_follow_the_system_and_the_button(self):
        self.addCleanup(self.emulate, None)
        self.emulate("light")
        self.open_sample()
        self.assertEqual(self.surface(), "rgb(255, 255, 255)")
        self.emulate("dark")
        self.assertEqual(self.surface(), "rgb(21, 24, 29)")
        self.browser.click("#theme")
        self.assertEqual(self.surface(), "rgb(255, 255, 255)")
