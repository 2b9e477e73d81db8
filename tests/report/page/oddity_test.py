"""What a recording may hold, or lack."""

from page_fixture import Page
from sample_model import sample_model


def empty_model(**more):
    return {"version": 1, "title": "nothing", "notes": [], "end": 0, "texts": [], "ranks": [], "difference": None,
            **more}


def empty_pool():
    return {"name": "empty", "kind": "vmm", "device": 0, "from": 0, "to": -1,
            "bytes": {"time": [], "reserved": [], "allocated": [], "requested": [], "cached": []}}


class Oddities(Page):

    def test_markup_in_names_is_text(self):
        markup = "<img src=x onerror=\"window.ran=1\"></script><script>window.ran=1</script>"
        model = sample_model()
        model.update(title=markup, notes=[markup], texts=[markup] * len(model["texts"]))
        for rank in model["ranks"]:
            rank.update(host=markup, program=markup, notes=[markup])
            rank["events"]["text"] = [markup] * len(rank["events"]["text"])
            for pool in rank["pools"]:
                pool.update(name=markup)
        model["difference"].update(pool=markup, ranks=[{"rank": 0, "time": 5, "text": markup}])
        self.open(model)
        self.search("img src")
        self.browser.press("Enter")
        self.assertIn("<img src=x", self.text("#title"))
        self.assertIn("<img src=x", self.text("#hits ul"))
        self.assertEqual(self.browser.run("return [window.ran, document.images.length, document.scripts.length]"),
                         [None, 0, 2])
        self.assertEqual(self.browser.run("return document.title"), f"the ranks' calls differ · {markup}")

    def test_a_model_without_ranks_is_a_sentence(self):
        self.open(empty_model())
        self.assertIn("nothing to draw", self.text("#notes"))

    def test_a_rank_without_pools_is_a_sentence(self):
        self.open(empty_model(ranks=[{"rank": 5, "host": "a", "pid": 1, "program": "p", "pools": [], "events": {}}]))
        self.assertIn("rank 5 made no pool", self.text("#notes"))
        self.assertBecomes("return document.getElementById('free-memory').textContent.includes('has no pool')")
        self.browser.press("ArrowDown")

    def test_a_pool_without_columns_is_a_sentence(self):
        self.open(empty_model(ranks=[{"rank": 0, "pools": [empty_pool()]}]))
        self.assertBecomes("return document.getElementById('free-memory').textContent.includes('has no memory')")

    # Of 20 MiB the last 2 go, and the rest is a segment of its own from then on. Behind it 6 MiB more come, into which
    # a block reaches.
    def test_blocks_stay_where_pages_of_an_expandable_pool_come_and_go(self):
        mib = 1 << 20
        base = 0x7f0000000000
        pool = {**empty_pool(), "kind": "vmm, expandable",
                "segments": {"address": [hex(base), hex(base), hex(base + 18 * mib)],
                             "bytes": [20 * mib, 18 * mib, 6 * mib], "from": [0, 50, 60],
                             "to": [50, -1, -1]},
                "blocks": {"segment": [0, 1], "offset": [0, 16 * mib], "bytes": [4 * mib, 5 * mib],
                           "requested": [4 * mib, 5 * mib], "from": [10, 70], "to": [-1, -1], "stream": [-1, -1],
                           "stack": [-1, -1]}}
        event = {"kind": ["scope"], "pool": [0], "from": [80], "to": [90], "text": ["step"], "waited_for": [-1],
                 "failed": [0]}
        self.open(empty_model(end=100, ranks=[{"rank": 0, "pools": [pool], "events": event}]))
        self.browser.press("n")
        self.assertBecomes("return document.getElementById('free-memory').textContent.includes(arguments[0])",
                           "15 MiB free in 2 gaps")

    def test_another_version_is_a_sentence(self):
        self.open(empty_model(version=2), drawn=False)
        self.assertBecomes("return document.getElementById('failure').textContent.includes('version is 2')")

    def test_a_model_that_was_cut_off_is_a_sentence(self):
        self.open(None, text='{"version": 1, "ra', drawn=False)
        self.assertBecomes("return document.getElementById('failure').textContent.includes('cannot be shown')")
