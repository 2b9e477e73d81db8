"""Reads the records of `commpool audit` for hardware_audit.py."""

import json

_MIB = 1 << 20
_ALLOWED = 64 * _MIB


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def verdict(used, attributed):
    """"right" where the difference is within 1 % of what is used, or 64 MiB."""
    rest = abs(used - attributed)
    return "right" if rest <= max(used / 100, _ALLOWED) else "wrong"


def steps(lines):
    """A row for each rank's device at each step's end, in MiB."""
    found = []
    for line in lines:
        if not line["reason"].startswith("step"):
            continue
        for device in line["devices"]:
            used, attributed = device["used"], device["attributed"]
            found.append({"rank": line["rank"], "reason": line["reason"], "device": device["device"],
                          "used": used / _MIB, "attributed": attributed / _MIB, "rest": (used - attributed) / _MIB,
                          "context_known": device["context_known"],
                          "verdict": verdict(used, attributed) if device["context_known"] else "no start"})
    return found


def _sum(line, what, column):
    return sum(row[column] for row in line["rows"] if row["what"] == what)


def wrong_memory(lines):
    """Sentences about what the reports of hardware_audit_memory.py should have and have not."""
    by_reason = {line["reason"]: line for line in lines}
    wrong = []

    def expect(right, sentence):
        if not right:
            wrong.append(sentence)

    arrays, gone = by_reason["step arrays"], by_reason["step arrays gone"]
    expect(_sum(arrays, "arrays", "bytes_now") >= 853 * _MIB, "arrays hold less than their elements")
    expect(_sum(gone, "arrays", "bytes_now") == 0, "arrays that are gone hold memory")
    graph, trimmed = by_reason["step graph"], by_reason["step graph gone"]
    expect(_sum(graph, "in graphs", "bytes_made") == 256 * _MIB, "the captured allocation is not a graph's")
    expect(graph["devices"][0]["in_graphs"] >= 256 * _MIB, "the driver holds less for graphs than they allocate")
    expect(trimmed["devices"][0]["in_graphs"] == 0, "the driver holds memory for graphs after a trim")
    return wrong


def all_right(rows):
    """Whether there are steps, and each is attributed."""
    return bool(rows) and all(row["verdict"] == "right" for row in rows)
