"""Links between the documents: each leads to a file or folder of the repository, and to a heading that it has."""

import pathlib
import re

import tree

_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def headings(text):
    """The anchors of a document, as GitHub makes them of its headings."""
    titles = (re.sub(r"[^\w\- ]", "", title.strip().lower()) for title in _HEADING.findall(_CODE.sub("", text)))
    return {title.replace(" ", "-") for title in titles}


def links(text):
    """Where a document leads, without what it shows as code, and without addresses on the web."""
    return [link for link in _LINK.findall(_CODE.sub("", text)) if "://" not in link]


def _problem(root, path, link):
    place, _, anchor = link.partition("#")
    target = pathlib.Path(root, path.parent, place) if place else pathlib.Path(root, path)
    if not target.exists():
        return f"{path}: {link} leads nowhere"
    if not anchor:
        return None
    if target.is_dir():
        target /= "README.md"
    return None if anchor in headings(target.read_text(encoding="utf-8")) else f"{path}: {link} has no such heading"


def problems(root):
    documents = [path for path in tree.files(root) if path.suffix == ".md"]
    found = [_problem(root, path, link) for path in documents for link in links(tree.read(root, path) or "")]
    return [problem for problem in found if problem]
