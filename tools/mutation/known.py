"""Faults known to change no behaviour, each with the reason: a file of entries, keyed by the text of the line.

    src/library/engine/heap.cc: blocks.reserve(count); -> (void)0;
      The reservation only spares copies.

Blank lines and lines that begin with # are passed over. `*` behind the path stands for every fault of the file.
"""


class KnownFaults:

    def __init__(self, text):
        self._reasons, self._met = {}, set()
        key = None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if line[0].isspace():
                if key is None:
                    raise ValueError(f"line {number}: a reason without a fault")
                self._reasons[key] = f"{self._reasons[key]} {line.strip()}".strip()
                continue
            path, _, change = line.partition(": ")
            key = (path, " ".join(change.split()))
            if change != "*" and " -> " not in change:
                raise ValueError(f"line {number}: neither * nor a change from one line to another")
            self._reasons[key] = ""
        without_reason = [f"{path}: {change}" for (path, change), reason in self._reasons.items() if not reason]
        if without_reason:
            raise ValueError("without a reason: " + "; ".join(without_reason))

    def reason(self, fault):
        """Why the fault changes no behaviour; None for one that may."""
        for key in [(fault.path, fault.text()), (fault.path, "*")]:
            if key in self._reasons:
                self._met.add(key)
                return self._reasons[key]
        return None

    def stale(self, faults):
        """The entries that match no possible fault of the sources."""
        for fault in faults:
            self.reason(fault)
        return [f"{path}: {change}" for path, change in self._reasons if (path, change) not in self._met]
