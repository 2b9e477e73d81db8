"""How libraries are linked that go into programs which know nothing of them."""

ALONE = [
    # Its functions stand in the program's tables for good.
    "-Wl,-z,nodelete",
    # A program may bring a newer libstdc++ than the system's, and would get that one if this library asked for it.
    "-Wl,--as-needed",
    "-l:libstdc++.a",
]
