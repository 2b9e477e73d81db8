"""One-line faults for C++ sources: negates a condition, drops a statement, moves a bound."""

import dataclasses
import re

# Comments, raw strings, strings and characters hold no code.
_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
# Checks of our own invariants change nothing while the code is correct.
_CHECK = re.compile(r"\b(?:COMMPOOL_CHECK|static_assert)\s*\(")
_CONDITION = re.compile(r"\b(?:if|while) \(")
_EQUALITY = re.compile(r" (==|!=) ")
_COMPARISON = re.compile(r" (<=|>=|<|>) ")
_OFFSET = re.compile(r" [+-] 1\b(?![.'])")
_EXTREME = re.compile(r"\bstd::(min|max)\b(?=[(<])")
_JUMP = re.compile(r"(?:return|break|continue);")
_CALL = re.compile(r"(?:\(void\))?[*(]?[\w:]+(?:[\w:.\[\]()*]|->)*\(.*\);")
_CHANGE = re.compile(r"(?:\+\+|--)[^;]+;|[\w:.\[\]()*>-]+ (?:[-+*/|&]|<<|>>)?= [^;]+;|[\w:.\[\]()>-]+(?:\+\+|--);")
# The text that may stand before a statement.
_ENDS = re.compile(r"(?:[;{}:)]|\belse)\s*$")
_GUARDED_JUMP = re.compile(r"if \(.*\) (?:return\b.*|break|continue);")

# The folders of src/library that are given faults.
LAYERS = ["engine", "backing", "registration", "stream", "pool"]

_OTHER = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "min": "max", "max": "min"}


@dataclasses.dataclass(frozen=True, order=True)
class Fault:
    path: str
    line: int  # From 1.
    kind: str  # negated, dropped or moved.
    before: str
    after: str

    def text(self):
        """Identifies the fault even when lines above it change."""
        return f"{squeeze(self.before)} -> {squeeze(self.after)}"

    def place(self):
        return f"{self.path}:{self.line}"


def squeeze(text):
    return " ".join(text.split())


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def closing(text, opening):
    """The position of the parenthesis that closes the one at `opening`; -1 where there is none."""
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return -1


def code_of(text):
    """The text in the same shape, but with code alone."""
    text = _DIRECTIVE.sub(_blank, _NOISE.sub(_blank, text))
    for match in list(_CHECK.finditer(text)):
        end = closing(text, match.end() - 1)
        span = text[match.start():end + 1]
        text = text[:match.start()] + re.sub(r"[^\n]", " ", span) + text[end + 1:]
    return text


def _negations(line, code):
    for match in _CONDITION.finditer(code):
        end = closing(code, match.end() - 1)
        condition = line[match.end():end]
        if end < 0 or ";" in code[match.end():end] or re.match(r"(?:const )?auto[ *&]", condition):
            continue
        yield f"{line[:match.end()]}!({condition}){line[end:]}"
    for match in _EQUALITY.finditer(code):
        if not _CONDITION.search(code):  # There the whole condition is negated.
            yield line[:match.start(1)] + _OTHER[match.group(1)] + line[match.end(1):]


def _drops(line, code):
    indent, statement = line[:len(line) - len(line.lstrip())], code.strip()
    if code.count("(") != code.count(")") or code.count("{") != code.count("}") or not indent:
        return
    if any(pattern.fullmatch(statement) for pattern in [_JUMP, _CALL, _CHANGE, _GUARDED_JUMP]):
        yield f"{indent}(void)0;"


def _moves(line, code):
    for pattern in [_COMPARISON, _EXTREME]:
        for match in pattern.finditer(code):
            yield line[:match.start(1)] + _OTHER[match.group(1)] + line[match.end(1):]
    for match in _OFFSET.finditer(code):
        yield line[:match.start()] + line[match.end():]


def faults_of(path, text):
    """Every possible fault of the file, in the order of its lines."""
    found, continues = [], False
    for number, (line, code) in enumerate(zip(text.split("\n"), code_of(text).split("\n")), 1):
        for kind, changes in [("negated", _negations), ("dropped", _drops), ("moved", _moves)]:
            if kind == "dropped" and continues:
                continue  # The end of a statement is none.
            found += [Fault(path, number, kind, line, after) for after in changes(line, code)]
        if code.strip():
            continues = not _ENDS.search(code)
    return found


def faults_below(root, layers):
    """Every fault of a checkout's layers."""
    library = root / "src" / "library"
    paths = [path for layer in layers for path in (library / layer).rglob("*") if path.suffix in {".h", ".cc"}]
    return [fault for path in paths
            for fault in faults_of(str(path.relative_to(root)), path.read_text(encoding="utf-8"))]
