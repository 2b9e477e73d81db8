"""How long the functions of a file are, by matching braces: near enough for clang-formatted C++."""

import ast
import re

# Comments, raw strings, strings and characters: each may hold braces that are none.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_SCOPE = re.compile(r"(?:^|\s)(namespace|class|struct|union|enum|extern)(?:\s|$)")
_NAME = re.compile(r"([\w:~]+|operator\s*\S+)\s*\(")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


_ACCESS = re.compile(r"^(\s*(public|private|protected)\s*:)+")
_TYPE = re.compile(r"\b(class|struct|union|enum)\s")


def _is_function(head):
    if "(" not in head or head.rstrip().endswith("="):
        return False
    # `class CAPABILITY("mutex") Mutex : public Base` has parentheses too, but a name or base after the last of them.
    tail = re.sub(r"\b(const|noexcept|override|final)\b|->.*", "", head[head.rindex(")") + 1:] if ")" in head else head)
    return not (_TYPE.search(head) and tail.strip())


def cpp_functions(text):
    """(name, lines) of each function; what lies inside one counts with it."""
    text = _DIRECTIVE.sub(blank, NOISE.sub(blank, text))
    found, depth, inside, head_start = [], 0, None, 0
    for match in re.finditer(r"[{};]", text):
        mark, position = match.group(0), match.start()
        if inside is None:
            head = text[head_start:position]
            if mark == "{" and _is_function(head):
                head = _ACCESS.sub(blank, head)
                start = head_start + len(head) - len(head.lstrip())
                name = _NAME.search(head)
                inside = (name.group(1) if name else "?", text.count("\n", 0, start), depth)
            elif mark == "{" and not _SCOPE.search(head):
                inside = (None, 0, depth)  # An initialiser.
            head_start = position + 1
        depth += {"{": 1, "}": -1, ";": 0}[mark]
        if mark == "}" and inside is not None and depth == inside[2]:
            if inside[0]:
                found.append((inside[0], text.count("\n", 0, position) - inside[1] + 1))
            inside, head_start = None, position + 1
    return found


def python_functions(text):
    nodes = ast.walk(ast.parse(text))
    return [(node.name, node.end_lineno - node.lineno + 1) for node in nodes if isinstance(node, ast.FunctionDef)]


def shell_functions(text):
    return [(match.group(1), match.group(0).count("\n") + 1)
            for match in re.finditer(r"^(\w+)\(\) \{\n.*?^\}", text, re.MULTILINE | re.DOTALL)]
