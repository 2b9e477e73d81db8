"""How users move in time and from pool to pool."""

from page_fixture import SPAN, Page


class Moves(Page):

    def assertSpanChanges(self, act):
        before = self.browser.run(SPAN)
        act()
        self.assertBecomes("return document.getElementById('span').value !== arguments[0]", before)

    def test_the_wheel_zooms(self):
        self.open_sample()
        self.assertEqual(self.browser.run(SPAN), "0.000 s – 4.500 s")
        self.assertSpanChanges(lambda: self.browser.wheel("#rows canvas", -400))

    def test_a_drag_moves_what_is_shown(self):
        self.open_sample()
        self.assertSpanChanges(lambda: self.browser.wheel("#rows canvas", -400))
        self.assertSpanChanges(lambda: self.browser.drag("#rows canvas", 200))

    def test_keys_zoom_and_move(self):
        self.open_sample()
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
        self.open_sample()
        reached = set()
        for _ in range(60):
            self.browser.press("Tab")
            reached.add(self.browser.run("return document.activeElement.id"))
        wanted = {"search", "theme", "show-keys", "zoom-in", "rows", "map", "colour-by", "peak-rank"}
        self.assertLessEqual(wanted, reached)
