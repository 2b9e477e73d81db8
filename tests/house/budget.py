"""How much code there may be: counts of the repository, beside those that `budget` allows.

usage: budget.py [--root DIR]      prints the counts as `budget` has them
A row is a number and what has it: lines of code below a folder, without those of rows for folders below it; functions
that the C headers declare; words of pages. Every file of src belongs to a row.
"""

import argparse
import collections
import pathlib
import subprocess

import count_code
import symbols
import tree

FILE = pathlib.Path("tests/house/budget")
FUNCTIONS = "public functions"
WORDS = "words of pages"
MARK = "Budget:"  # begins a line of the body of a commit that may raise it
_COUNTED = ("src", "tools", "tests")
_HEADERS = pathlib.Path("include/commpool")


def rows(text):
    """{what: number} of the text of a budget."""
    pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {what: int(number) for number, what in pairs}


def folders_of(allowed):
    return [what for what in allowed if what not in (FUNCTIONS, WORDS)]


def _row_of(path, folders):
    """The nearest folder above the file; None without one."""
    return next((str(folder) for folder in path.parents if str(folder) in folders), None)


def counts(root, folders):
    """{what: number} as the checkout is, with the folders that are named, and None for files of src below none."""
    found = collections.Counter({what: 0 for what in (*folders, FUNCTIONS, WORDS)})
    for path in tree.files(root):
        if path.suffix == ".md":
            found[WORDS] += len(tree.read(root, path).split())
        if path.parent == _HEADERS and path.suffix == ".h":
            found[FUNCTIONS] += len(symbols.declared(tree.read(root, path)))
        if path.parts[0] in _COUNTED and (lines := count_code.lines_of(path, lambda file=path: tree.read(root, file))):
            found[_row_of(path, folders)] += lines
    return found


def over(allowed, found):
    """What the checkout has more of than the budget allows."""
    problems = [f"{what}: {number}, over {allowed.get(what, 0)} of {FILE}"
                for what, number in found.items() if what is not None and number > allowed.get(what, 0)]
    return problems + ([f"src has code below no row of {FILE}"] if None in found else [])


def raised(before, after, body):
    """What a commit allows more of than its parent did, where its body does not say which program needs that."""
    if any(line.startswith(MARK) for line in body.splitlines()):
        return []
    return [f"{what} rises from {before.get(what, 0)} to {number}: a line of the commit's body says why (`{MARK} ...`)"
            for what, number in after.items() if number > before.get(what, 0)]


def _git(root, *words):
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


class Step:
    """The budget of the newest commit and of its parent. `why_none`: there is nothing to compare."""

    def __init__(self, root):
        before, after = (_git(root, "show", f"{commit}:{FILE}") for commit in ("HEAD^", "HEAD"))
        self.why_none = ""
        if _git(root, "rev-parse", "--verify", "--quiet", "HEAD^") is None:
            self.why_none = "no history here: the parent's budget is not known"
        elif before is None or after is None:
            self.why_none = "the newest commit or its parent has no budget"
        else:
            self.problems = raised(rows(before), rows(after), _git(root, "log", "-1", "--format=%b"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    allowed = rows((root / FILE).read_text(encoding="utf-8"))
    for what, number in counts(root, folders_of(allowed)).items():
        print(f"{number:6} {what or 'below no row'}")


if __name__ == "__main__":
    main()
