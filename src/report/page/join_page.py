#!/usr/bin/env python3
"""Joins the page of a report with its style and its scripts, and writes it as parts.cc.

usage: join_page.py PAGE_HTML LICENSE STYLE_CSS D3_JS SCRIPT_JS... > parts.cc

PAGE_HTML has a mark for each of the others: {license}, {style} and {script}; {title} and {model} stay open, for
WritePage. {style_hash} and {script_hash} go into its Content-Security-Policy: a browser runs nothing else. The scripts
share one scope, which nothing outside sees.
"""

import base64
import hashlib
import html
import pathlib
import re
import sys

_PART = '''const std::string_view {name}(
    {literals},
    {length});
'''
_FILE = '''#include "src/report/page/parts.h"

namespace commpool::internal {{

{parts}
}}  // namespace commpool::internal
'''
_NAMES = ("kPageBeforeTitle", "kPageBeforeModel", "kPageAfterModel")
_D3_HEAD = re.compile(r"// https://d3js\.org v5\.")
_PIECE = 16000  # bytes of one literal: some compilers take no longer ones


def _hash(text):
    """As a Content-Security-Policy has it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _fill(page, marks):
    return re.sub(r"\{(\w+)\}", lambda mark: marks.get(mark[1], mark[0]), page)


def joined(page, license_text, style, d3, scripts):
    """The page with all but its title and its model."""
    if not _D3_HEAD.match(d3):
        raise ValueError("this is not D3 5: its first line names another version")
    script = "\n" + d3 + "\n(() => {\n\"use strict\";\n" + "\n".join(scripts) + "})();\n"
    style = "\n" + style
    for text, end in ((script, "</script"), (script, "<!--"), (style, "</style")):
        if end in text:
            raise ValueError(f"{end} would end it early")
    return _fill(page, {"license": html.escape(license_text), "style": style, "script": script,
                        "style_hash": _hash(style), "script_hash": _hash(script)})


def _literal(data):
    return '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
                         for byte in data) + '"'


def _part(name, text):
    data = text.encode()
    pieces = [data[start:start + _PIECE] for start in range(0, len(data), _PIECE)]
    return _PART.format(name=name, literals="\n    ".join(map(_literal, pieces)), length=len(data))


def main():
    page, license_text, style, d3, *scripts = [pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]]
    try:
        whole = joined(page, license_text, style, d3, scripts)
    except ValueError as error:
        sys.exit(f"join_page.py: {error}")
    # The first of each: scripts, which come last, may have the same text.
    before_title, rest = whole.split("{title}", 1)
    before_model, after_model = rest.split("{model}", 1)
    texts = (before_title, before_model, after_model)
    sys.stdout.write(_FILE.format(parts="\n".join(map(_part, _NAMES, texts))))


if __name__ == "__main__":
    main()
