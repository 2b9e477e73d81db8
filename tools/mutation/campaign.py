"""Draws faults, judges each, and lists those that the tests did not notice."""

import enum
import itertools
import random

ENOUGH = 0.9


class Verdict(enum.Enum):
    NOTICED = "noticed"
    SURVIVED = "SURVIVES"
    EQUIVALENT = "equivalent"
    NOT_COMPILED = "redrawn"


def draw(faults, seed):
    """The faults with their numbers, in an order that depends only on the seed and the sources."""
    drawn = sorted(faults)
    random.Random(seed).shuffle(drawn)
    return list(enumerate(drawn))


class Campaign:
    """`judge(fault)` returns a verdict and its reason; `prepare(faults)` comes first, for many faults."""

    def __init__(self, judge, known, say=print, prepare=lambda faults: None):
        self._judge, self._known, self._say, self._prepare = judge, known, say, prepare
        self.counts = {verdict: 0 for verdict in Verdict}
        self.survivors = []

    def run(self, drawn, wanted):
        """Judges until `wanted` faults have a verdict; those that do not compile are replaced by the next."""
        rest = iter(drawn)
        while batch := list(itertools.islice(rest, wanted - self.judged())):
            self._prepare([fault for _, fault in batch if not self._known.reason(fault)])
            for number, fault in batch:
                self._one(number, fault)
        for number, fault, _ in self.survivors:
            self._say(f"survives: #{number} {fault.place()}\n  - {fault.before.strip()}\n  + {fault.after.strip()}")
        self._say(self.line())

    def _one(self, number, fault):
        reason = self._known.reason(fault)
        verdict, cause = (Verdict.EQUIVALENT, reason) if reason else self._judge(fault)
        self.counts[verdict] += 1
        if verdict is Verdict.SURVIVED:
            self.survivors.append((number, fault, cause))
        self._say(f"#{number} {verdict.value}: {fault.kind} {fault.place()}: {fault.text()} ({cause})")

    def judged(self):
        return sum(count for verdict, count in self.counts.items() if verdict is not Verdict.NOT_COMPILED)

    def line(self):
        return (f"{self.judged()} faults: {self.counts[Verdict.NOTICED]} noticed, "
                f"{self.counts[Verdict.SURVIVED]} survive, {self.counts[Verdict.EQUIVALENT]} equivalent")

    def good(self):
        """Whether the tests noticed enough of the faults that change behaviour; without judged faults: no."""
        changing = self.counts[Verdict.NOTICED] + self.counts[Verdict.SURVIVED]
        return self.judged() > 0 and self.counts[Verdict.NOTICED] >= ENOUGH * changing
