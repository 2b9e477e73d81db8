"""Names of files and identifiers keep to the table of words in src/library/reference.md."""

import io
import pathlib
import re
import tokenize

import functions
import tree

HOME = pathlib.Path("src/library/reference.md")
FOLDERS = {"examples", "include", "src", "tests", "tools"}
_KEPT = pathlib.Path("tests/data")  # as programs recorded it, or were built with it
_TABLE = re.compile(r"^\| word \| means \| not \|\n\|[-| ]+\|\n((?:\|.*\n)*)", re.MULTILINE)
# The table rules these out for one thing each; elsewhere they are the usual words.
_USUAL_ELSEWHERE = {"add", "create", "dead", "drop", "failed", "give back", "insert", "lock", "pause", "release",
                    "reserve", "retire", "return"}
# Our public `pool.stats()`, and what NCCL, PyTorch, vLLM and torch_memory_saver call theirs.
_NAMES = re.compile(r"stats|(?:nccl|NCCL_)\w+|(?:get|reset)?(?:Device|Host|Accumulated|Peak)Stats|"
                    r"(?:get|reset_accumulated|reset_peak)_stats|(?:(?:reset_\w+|host)_)?memory_stats\w*|"
                    r"batch_norm_\w*stats\w*|offload_tags|resume")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def unwanted(text):
    """The words that no name may have, by the text of src/library/reference.md."""
    cells = [row.split("|")[3] for table in _TABLE.findall(text) for row in table.splitlines()]
    return {word.strip() for cell in cells for word in cell.split(",")} - {""} - _USUAL_ELSEWHERE


def parts(name):
    return {part.lower() for part in _PART.findall(name)}


def identifiers(path, text):
    """(line, name) of each name in the code of a file: comments and strings have none."""
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.NAME]
    if path.suffix in tree.CODE | {".c"}:
        code = functions.NOISE.sub(functions.blank, text)
        return [(line, name) for line, content in enumerate(code.splitlines(), 1)
                for name in _IDENTIFIER.findall(content)]
    return []


def problems(root):
    home = pathlib.Path(root, HOME)
    words = unwanted(home.read_text(encoding="utf-8")) if home.exists() else set()
    found = []
    for path in tree.files(root):
        if path.parts[0] not in FOLDERS or _KEPT in path.parents:
            continue
        found += [f"{path}: {HOME} has another word for `{word}`" for word in sorted(parts(path.name) & words)]
        found += [f"{path}:{line}: {name}: {HOME} has another word for `{word}`"
                  for line, name in dict.fromkeys(identifiers(path, tree.read(root, path) or ""))
                  if not _NAMES.fullmatch(name) for word in sorted(parts(name) & words)]
    return found
