"""Compares a suite's tests with and without a pool, as text and as a line of a record."""

import collections
import ctypes
import datetime
import json
import os
import re

_NUMBER = re.compile(r"0x[0-9a-f]+|\d{4,}")  # addresses, and sizes that vary
_ABSENT = {"outcome": "absent", "reason": "", "served": 0}


class Comparison:
    """Compares {way: {test: outcome}}."""

    def __init__(self, found):
        self._found = found
        self.names = list(dict.fromkeys(name for outcomes in found.values() for name in outcomes))
        self.differences, self.other_reasons = {}, {}
        for name in self.names:
            both = {way: outcomes.get(name, _ABSENT) for way, outcomes in found.items()}
            if len({of["outcome"] for of in both.values()}) > 1:
                self.differences[name] = both
            elif len({_NUMBER.sub("", of["reason"]) for of in both.values()}) > 1:
                self.other_reasons[name] = both  # a test that fails in both ways may hide a failure of the pool
        # Nothing is known of these; mostly a package that the tests import is missing.
        self.uncollected = {name: of["reason"] for outcomes in found.values() for name, of in outcomes.items()
                            if of["outcome"] == "uncollected"}

    def counts(self):
        """{way: {outcome: tests}}"""
        return {way: dict(collections.Counter(of["outcome"] for of in outcomes.values()))
                for way, outcomes in self._found.items()}

    def served(self):
        """How many tests a pool served."""
        return sum(of["served"] > 0 for outcomes in self._found.values() for of in outcomes.values())

    def results(self):
        return {"counts": self.counts(), "served": self.served(), "differences": self.differences,
                "other_reasons": self.other_reasons}

    def text(self):
        counts = self.counts()
        kinds = sorted({kind for of in counts.values() for kind in of})
        lines = [" " * 8 + "".join(f"{kind:>12}" for kind in kinds)]
        lines += [f"{way:<8}" + "".join(f"{of.get(kind, 0):>12}" for kind in kinds) for way, of in counts.items()]
        lines.append(f"the pool served {self.served()} of {len(self.names)} tests; {len(self.differences)} differ")
        lines += _both_ways(self.differences)
        if self.other_reasons:
            lines.append(f"{len(self.other_reasons)} come out the same for another reason")
            lines += _both_ways(self.other_reasons)
        lines += [f"could not be collected: {name}: {reason}" for name, reason in self.uncollected.items()]
        return "\n".join(lines)


def _both_ways(tests):
    for name, both in tests.items():
        yield name
        yield from (f"  {way:<8}{of['outcome']:<8} {of['reason']}".rstrip() for way, of in both.items())


def _device():
    driver, name = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(256)
    if driver.cuInit(0) == 0:
        driver.cuDeviceGetName(name, len(name), 0)
    return name.value.decode()


def record(file, command, versions, results):
    """Appends a line to a record, as the other tools do."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine = {"device": _device(), "cores": os.cpu_count(), **versions}
    with open(file, "a", encoding="utf-8") as opened:
        json.dump({"command": command, "date": date, "machine": machine, "results": results}, opened, sort_keys=True)
        opened.write("\n")
