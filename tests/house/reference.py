"""The table of include/commpool/functions.md that names, for each exported function, the program that needs it."""

import re

_TITLE = "## Who needs what\n"
_NAME = re.compile(r"`(commpool_\w+)`")


def rows(readme):
    """(functions, program) of each line of the table."""
    section = readme.partition(_TITLE)[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [(_NAME.findall(row[0]), row[1].strip()) for row in cells]


def problems(readme, functions):
    """Functions without a row, without a program or with two rows, and rows of what nobody exports."""
    named = [name for names, _ in rows(readme) for name in names]
    found = [f"{name} is exported, and the table names no program that needs it" for name in functions - set(named)]
    found += [f"{name} stands in the table, and is not exported" for name in set(named) - functions]
    found += [f"{name} stands in the table twice" for name in set(named) if named.count(name) > 1]
    found += [f"{', '.join(names)}: no program is named" for names, program in rows(readme) if not program]
    return sorted(found)
