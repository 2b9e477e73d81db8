"""Writes many faults into the sources at once, each behind a switch that the environment turns on.

A switched line does what it did, and what the fault would make of it where COMMPOOL_PLANTED holds the fault's number.
So the sources are built once for all faults. With COMMPOOL_PLANTED_REACHED a program also notes, in that file, which of
the lines it came to, with the name of its test.
"""

import re

import faults

# Between the includes and the code. Declares what it calls itself: the file may not include it.
_ASKS = """\
#ifndef COMMPOOL_PLANTED
#define COMMPOOL_PLANTED
extern "C" char* getenv(const char*) noexcept(true);
extern "C" int open(const char*, int, ...);
extern "C" int close(int);
extern "C" long write(int, const void*, unsigned long);
namespace commpool_planted {
inline void Reached(const char* file, int number) {
  static bool noted[4096];
  if (noted[number]) return;
  noted[number] = true;
  char line[600];
  int length = 0;
  const char* test = getenv("TEST_TARGET");
  for (; test != nullptr && *test != 0 && length < 500; ++test) line[length++] = *test;
  line[length++] = ' ';
  for (int unit = 1000000; unit > 0; unit /= 10) line[length++] = static_cast<char>('0' + number / unit % 10);
  line[length++] = '\\n';
  const int descriptor = open(file, 02001);
  if (descriptor < 0 || write(descriptor, line, static_cast<unsigned long>(length)) != length) noted[number] = false;
  if (descriptor >= 0) close(descriptor);
}
inline bool Is(int number) {
  static const int chosen = [] {
    int value = -1;
    const char* text = getenv("COMMPOOL_PLANTED");
    for (; text != nullptr && *text != 0; ++text) value = (value < 0 ? 0 : value * 10) + (*text - '0');
    return value;
  }();
  static const char* const reached = getenv("COMMPOOL_PLANTED_REACHED");
  if (reached != nullptr) Reached(reached, number);
  return chosen == number;
}
}  // namespace commpool_planted
#endif
"""
_RETURN = re.compile(r"return (?P<value>.+);")
_ASSIGNMENT = re.compile(r"(?P<target>[^=();]+ [-+*/|&]?=) (?P<value>.+);")
_LOOP = re.compile(r"for \((?P<first>[^;]*); (?P<condition>[^;]+); (?P<last>[^;]*)\) \{")


def _ask(number):
    return f"commpool_planted::Is({number})"


def _either(number, before, after):
    return f"{_ask(number)} ? ({after}) : ({before})"


def _code(line):
    """The line without a comment behind it, and the same with nothing in its strings."""
    blanked = faults.code_of(line).rstrip()
    return line[:len(blanked)], blanked


def _value(pattern, before, after, number):
    """One statement that differs in one part alone: the text of the part that `pattern` names value or condition."""
    part = "condition" if "condition" in pattern.groupindex else "value"
    one, other = pattern.fullmatch(before.strip()), pattern.fullmatch(after.strip())
    if not one or not other or one.group(part).count("(") != one.group(part).count(")"):
        return None
    start, end = one.span(part)
    rest_is_equal = (one.string[:start], one.string[end:]) == (other.string[:other.start(part)],
                                                               other.string[other.end(part):])
    if not rest_is_equal:
        return None
    return f"{one.string[:start]}{_either(number, one.group(part), other.group(part))}{one.string[end:]}"


def _condition(before, blanked, after, number):
    """`if (a) {` or `while (a) {` whose condition differs."""
    for match in re.finditer(r"\b(?:if|while) \(", blanked):
        end = faults.closing(blanked, match.end() - 1)
        tail = before[end:] if end >= 0 else None
        if tail is None or ";" in blanked[match.end():end] or not after.endswith(tail) or after[:match.end()] != \
                before[:match.end()]:
            continue
        changed = after[match.end():len(after) - len(tail)]
        if changed.count("(") != changed.count(")"):
            continue
        condition = before[match.end():end]
        choice = f"{_ask(number)} ? static_cast<bool>({changed}) : static_cast<bool>({condition})"
        return f"{before[:match.end()]}{choice}{tail}"
    return None


def switched(fault, number):
    """The line with the fault behind a switch; None where one line cannot hold both."""
    before, blanked = _code(fault.before)
    after, _ = _code(fault.after)
    indent = before[:len(before) - len(before.lstrip())]
    if fault.kind == "dropped":
        return f"{indent}{{ if (!{_ask(number)}) {{ {before.strip()} }} }}"
    line = _condition(before, blanked, after, number)
    if line is not None:
        return line
    for pattern in [_RETURN, _LOOP, _ASSIGNMENT]:
        line = _value(pattern, before, after, number)
        if line is not None:
            return indent + line
    return None


class Switches:
    """The faults of one build, by their numbers. Those of which a line can hold no switch stay alone."""

    MOST = 4096  # As many as a program notes.

    def __init__(self, listed=()):
        self._numbers, self._lines, self._taken = {}, {}, set()
        self.add(listed)

    def add(self, listed):
        for fault in listed:
            number = self._numbers.setdefault(fault, len(self._numbers))
            if number >= self.MOST:
                raise ValueError(f"more than {self.MOST} faults in one build")
            place, line = (fault.path, fault.line), switched(fault, number)
            if line is not None and place not in self._taken:
                self._taken.add(place)
                self._lines[fault] = line

    def number(self, fault):
        return self._numbers[fault]

    def has(self, fault):
        return fault in self._lines

    def drop_at(self, path, line):
        """Leaves the fault of this line alone; whether there was one. A case that now falls through is told of where it
        ends: behind the line."""
        near = [fault for fault in self._lines if fault.path == path and line - 2 <= fault.line <= line]
        found = [fault for fault in near if fault.line == max(fault.line for fault in near)]
        for fault in found:
            del self._lines[fault]
        return bool(found)

    def text(self, path, original, alone=None):
        """The file with its switches, or with one fault for good."""
        lines = original.split("\n")
        here = {fault.line: line for fault, line in self._lines.items() if fault.path == path}
        for line, text in here.items():
            lines[line - 1] = text
        if alone is not None and alone.path == path:
            lines[alone.line - 1] = alone.after
        if not here:
            return "\n".join(lines)
        place = next(index for index, line in enumerate(lines) if line.startswith("namespace "))
        return "\n".join([*lines[:place], f"{_ASKS}#line {place + 1}", *lines[place:]])
