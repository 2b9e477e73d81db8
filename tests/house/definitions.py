"""No two files of src and include define one name in one name space: such headers could not be included together.

Types, aliases and constants count; functions have overloads. What a file keeps to itself, in a name space without a
name, binds nobody else.
"""

import collections
import re

import functions
import tree

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
# A specialisation's name is followed by `<`, a function's by `(`: neither is one of these.
_TYPE = re.compile(r"\b(?:enum(?:\s+(?:class|struct))?|struct|class|union)\s+"
                   r"(?:[A-Z_]+\([^)]*\)\s+|alignas\([^)]*\)\s+)?(\w+)\s*(?:\bfinal\s*)?(?::(?!:).*)?$", re.DOTALL)
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=")
_CONSTANT = re.compile(r"^\s*(?:inline\s+)?(?:constexpr|constinit|const)\b[^=(]*?\b(\w+)\s*(?:=|$)")
_SPACE, _OTHER = "", None  # extern "C", and what is no name space


def _opened(head):
    """The name space that a head opens; "?" for one without a name, None for what is none."""
    found = _NAMESPACE.search(head)
    if found:
        return found.group(1) or "?"
    return _SPACE if re.search(r"\bextern\s*$", head) else _OTHER


def _defined(head, mark):
    patterns = (_TYPE, _CONSTANT) if mark == "{" else (_ALIAS, _CONSTANT)
    return next((found.group(1) for found in (pattern.search(head) for pattern in patterns) if found), "")


def definitions(text):
    """Names with their name spaces, "commpool::internal::Pool", that the text of a file defines for all to see."""
    text = _DIRECTIVE.sub(functions.blank, functions.NOISE.sub(functions.blank, text))
    found, scopes, begin = set(), [], 0
    for match in re.finditer(r"[{};]", text):
        mark, head = match.group(0), text[begin:match.start()]
        begin = match.end()
        seen = "?" not in scopes and _OTHER not in scopes
        name = _defined(head, mark) if seen and mark != "}" else ""
        if name:
            found.add("::".join([*filter(None, scopes), name]))
        if mark == "{":
            scopes.append(_opened(head))
        elif mark == "}" and scopes:
            scopes.pop()
    return found


def problems(root):
    files_of = collections.defaultdict(list)
    for path in tree.files(root):
        if path.parts[0] in ("src", "include") and path.suffix in tree.CODE:
            for name in definitions(tree.read(root, path)):
                files_of[name].append(str(path))
    return [f"{name} is defined in {' and '.join(files)}" for name, files in sorted(files_of.items()) if len(files) > 1]
