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


def all_right(rows):
    """Whether there are steps, and each is attributed."""
    return bool(rows) and all(row["verdict"] == "right" for row in rows)
