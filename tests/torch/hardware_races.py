"""What PyTorch's own sanitizer (torch.cuda._sanitizer) finds of the forgotten waits that commpool's emulator finds all,
without a GPU: each program as it forgets a wait, and as it waits.

usage: hardware_races.py [--record FILE]
"""

import torch
from torch.cuda import _sanitizer

import forgotten_waits
import public_races
from hardware_measure import record


def reported(program, forgets):
    """Whether the sanitizer objects to it."""
    try:
        program(forgotten_waits.Program(forgets))
        return False
    except _sanitizer.CUDASanitizerErrors:
        return True
    finally:
        torch.cuda.synchronize()


def main():
    programs = forgotten_waits.PROGRAMS + public_races.PROGRAMS
    sanitizer = _sanitizer.CUDASanitizer()
    sanitizer.enable()
    found = {program.__name__: [reported(program, forgets) for forgets in (True, False)] for program in programs}
    sanitizer.disable()
    for name, (forgotten, waiting) in found.items():
        print(f"{name}: {'found' if forgotten else 'missed'}{', and its twin is reported too' if waiting else ''}")
    results = {"programs": len(found), "found": sum(one for one, _ in found.values()),
               "reported where they wait": sum(one for _, one in found.values()),
               "missed": sorted(name for name, (one, _) in found.items() if not one)}
    print(results)
    record("tests/torch/hardware_races.py", {"torch.cuda._sanitizer": results})


if __name__ == "__main__":
    main()
