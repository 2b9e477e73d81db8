"""Each rule that a comment cites by its number stands in src/library/reference.md."""

import pathlib
import re

import tree

HOME = pathlib.Path("src/library/reference.md")
FOLDERS = {"examples", "include", "src", "tests", "tools"}
_SECTION = re.compile(r"^## Rules\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"^(\d+)\. ", re.MULTILINE)
# "rule 3", "rules 1, 3 and 11"; a comment may break the line, and then begins the next with its own mark.
_GAP = r"\s+(?:(?://|#|\*)\s*)?"
_CITATION = re.compile(rf"\b[Rr]ules?{_GAP}(\d+(?:(?:,|{_GAP}(?:and|or|to)){_GAP}\d+)*)\b")


def rules(text):
    """The numbers of the rules in the text of src/library/reference.md, in its order."""
    section = _SECTION.search(text)
    return [int(number) for number in _RULE.findall(section.group(1))] if section else []


def citations(text):
    """(line, number) of each rule that a text cites."""
    return [(text.count("\n", 0, match.start()) + 1, int(number)) for match in _CITATION.finditer(text)
            for number in re.findall(r"\d+", match.group(1))]


def problems(root):
    home = pathlib.Path(root, HOME)
    numbers = rules(home.read_text(encoding="utf-8")) if home.exists() else []
    found = []
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"{HOME}: its rules are not numbered from 1 on, one by one: {numbers}")
    for path in tree.files(root):
        text = tree.read(root, path) if path.parts[0] in FOLDERS else None
        found += [f"{path}:{line}: rule {number} is not in {HOME}" for line, number in citations(text or "")
                  if number not in numbers]
    return found
