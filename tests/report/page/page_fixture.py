"""The page of a report in a real browser: a page around a model, and what is asked of it."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import browser
from sample_model import sample_model

_WRITER = "tests/report/page/write_page"
SPAN = "return document.getElementById('span').value"
DRAWN = "return performance.getEntriesByName('first picture').length > 0"
TITLE = "return document.querySelector('#cursor-title').textContent"


@unittest.skipIf(browser.missing(), browser.missing())
class Page(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def open(self, model, text=None, drawn=True):
        path = self.folder / "report.html"
        text = text or json.dumps(model, separators=(",", ":")).replace("<", "\\u003c")
        with open(path, "wb") as out:
            subprocess.run([_WRITER, (model or {}).get("title", "")], input=text.encode(), stdout=out, check=True)
        self.browser.open(path)
        self.addCleanup(self.assertConsoleIsEmpty)
        if drawn:
            self.browser.wait(DRAWN)

    def resize(self, width, height):
        self.browser.resize(width, height)
        self.addCleanup(self.browser.resize)

    def open_sample(self, **more):
        self.open({**sample_model(), **more})

    def assertConsoleIsEmpty(self):
        self.assertEqual(self.browser.console(), [])

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).textContent", selector)

    def search(self, query):
        """The heading of the hits, once they are those of the query."""
        self.browser.run("document.querySelector('#hits h2').textContent = ''")
        self.browser.type("#search", query)
        return self.browser.wait("return document.querySelector('#hits h2').textContent")

    def assertBecomes(self, script, *arguments):
        self.assertTrue(self.browser.wait(script, *arguments))


class SamplePage(Page):
    """Opened before each test."""

    def setUp(self):
        self.open_sample()
