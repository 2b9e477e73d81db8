"""The machines that the emulator knows by name (src/emulator/named_machines.cc): tests run on each."""

MACHINES = [
    "apart",
    "eight",
    "four",
    "grace",
    "islands",
    "one",
    "two",
]
