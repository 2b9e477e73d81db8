"""How users move in time and from pool to pool, and search."""

from page_fixture import SPAN, TITLE, SamplePage
from sample_model import sample_model


class Moves(SamplePage):

    def assertSpanChanges(self, act):
        before = self.browser.run(SPAN)
        act()
        self.assertBecomes("return document.getElementById('span').value !== arguments[0]", before)

    def test_the_wheel_zooms(self):
        self.assertEqual(self.browser.run(SPAN), "0.000 s – 4.500 s")
        self.assertSpanChanges(lambda: self.browser.wheel("#rows canvas", -400))

    def test_a_drag_moves_what_is_shown(self):
        self.assertSpanChanges(lambda: self.browser.wheel("#rows canvas", -400))
        self.assertSpanChanges(lambda: self.browser.drag("#rows canvas", 200))

    def test_keys_zoom_and_move(self):
        self.browser.run("document.getElementById('rows').focus()")
        for key in ("+", "+", "ArrowRight", "ArrowLeft", "-"):
            self.assertSpanChanges(lambda key=key: self.browser.press(key))
        self.assertSpanChanges(lambda: self.browser.press("Home"))
        self.assertEqual(self.browser.run(SPAN), "0.000 s – 4.500 s")

    def test_keys_choose_a_pool(self):
        self.open_sample(difference=None)
        self.browser.run("document.getElementById('rows').focus()")
        self.browser.press("ArrowDown")
        self.assertBecomes("return document.querySelector('[aria-pressed=true]').textContent.startsWith('gradients')")
        self.assertIn("gradients, rank 0", self.text("#addresses-title"))

    def test_everything_can_be_reached_by_the_tab_key(self):
        reached = set()
        for _ in range(60):
            self.browser.press("Tab")
            reached.add(self.browser.run("return document.activeElement.id"))
        wanted = {"search", "theme", "show-keys", "zoom-in", "rows", "map", "colour-by", "peak-rank"}
        self.assertLessEqual(wanted, reached)


class Searches(SamplePage):

    def test_a_name_is_found(self):
        self.assertIn("3 pools", self.search("gradients"))
        self.browser.press("Enter")
        self.assertBecomes("return document.querySelector('#addresses-title').textContent === arguments[0]",
                           "Addresses of gradients, rank 0")

    def test_a_size_is_found(self):
        blocks = sample_model()["ranks"][0]["pools"]
        exact = sum(size == 25 << 20 for pool in blocks for size in pool["blocks"]["bytes"])
        self.assertGreater(exact, 0)
        self.assertRegex(self.search("25 MiB"), r"^Found \d+ blocks$")
        self.browser.press("Enter")
        self.assertBecomes("return !document.getElementById('block').hidden")
        self.assertIn("25 MiB (26,214,400 bytes)", self.text("#block dl"))

    def test_a_bound_of_sizes_is_found(self):
        wanted = sum(max(size, asked) > 40 << 20 for rank in sample_model()["ranks"] for pool in rank["pools"]
                     for size, asked in zip(pool["blocks"]["bytes"], pool["blocks"]["requested"]))
        self.assertEqual(self.search(">40MiB"), f"Found {wanted} blocks")
        self.assertEqual(self.search("> 1 TiB"), "Nothing found")

    def test_a_stack_is_found(self):
        self.assertIn("blocks", self.search("attention.forward"))
        self.browser.click("#hits li:nth-child(5) button")
        self.assertBecomes("return !document.getElementById('block').hidden")
        self.assertIn("attention.py:88", self.text("#block pre"))

    def test_an_event_is_found(self):
        self.assertEqual(self.search("memory for 96 mib"), "Found 1 event")
        self.browser.press("Enter")
        self.assertBecomes(TITLE + ".startsWith('Rank 2 at 1.8')")
