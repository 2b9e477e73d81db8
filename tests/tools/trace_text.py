"""Traces of allocations, as programs write them and `commpool replay` reads them."""


def read_trace(text):
    """(bytes live at the end, most bytes live, events) of a trace; fails where it is none."""
    live, together, most, events = {}, 0, 0, 0
    for line in (line for line in text.splitlines() if not line.startswith("#")):
        events += 1
        kind, block, *rest = line.split()
        if kind == "a":
            size, stream = (int(word) for word in rest)
            assert block not in live and size > 0 and stream >= 0, line
            live[block] = size
            together += size
            most = max(most, together)
        else:
            assert kind == "f" and not rest, line
            together -= live.pop(block)
    return together, most, events
