"""What the page is joined of, and what cannot be joined."""

import base64
import hashlib
import re
import unittest

import join_page

_PAGE = "<p>{license}</p><style>{style}</style>{style_hash} {title} {model} <script>{script}</script>{script_hash}"
_D3 = "// https://d3js.org v5.16.0 Copyright\n"


def joined(license_text="", style="", d3=_D3, scripts=()):
    return join_page.joined(_PAGE, license_text, style, d3, scripts)


def hash_of(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Joined(unittest.TestCase):

    def test_the_hashes_are_those_of_style_and_script(self):
        page = joined(style="p {}", scripts=["begin();"])
        for name in ("style", "script"):
            text = re.search(f"<{name}>(.*)</{name}>(.*)", page, re.DOTALL)
            self.assertTrue(text[2].startswith(hash_of(text[1])), name)

    def test_title_and_model_stay_open(self):
        page = joined(scripts=["const {model} = state;"])
        self.assertLess(page.index("{title}"), page.index("{model}"))
        self.assertIn("const {model} = state;", page)

    def test_a_license_is_text(self):
        self.assertIn("&lt;name&gt; &amp; others", joined(license_text="<name> & others"))

    def test_another_d3_is_refused(self):
        with self.assertRaisesRegex(ValueError, "not D3 5"):
            joined(d3="// https://d3js.org v7.9.0\n")

    def test_what_would_end_a_script_early_is_refused(self):
        for text in ("</script>", "<!--"):
            with self.assertRaisesRegex(ValueError, "would end it early"):
                joined(scripts=[f"'{text}'"])
