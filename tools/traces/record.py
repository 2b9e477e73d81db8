#!/usr/bin/env python3
"""Records the allocations of a PyTorch program for `commpool replay`.

usage: record.py [--device N] [--entries N] --out FILE.trace.xz PROGRAM [ARGUMENT...]
       record.py [--device N] [--entries N] --out FILE.trace.xz -m MODULE [ARGUMENT...]
Runs the program as `python PROGRAM ARGUMENT...` would, with the history of PyTorch's allocator switched on, and writes
what it asked for and gave back on the device, by default the one that is current when it ends: sizes as requested,
streams numbered by first use. What the program holds to its end is freed there, or never. A program that fails has
its trace written too, and its exit code is this one's. Of several ranks, as torchrun starts them, each writes a file of
its own: FILE.rank1.trace.xz. What processes allocate that the program starts is not recorded. Needs PyTorch and a GPU.
"""

import argparse
import os
import pathlib
import runpy
import sys
import traceback

import trace_writer

# The allocator notes this when the program frees. The memory may be reused later, when other streams are done with it.
_FREED = "free_requested"


def write_history(events, trace):
    """The events of one device, in order, into a trace: {action, addr, size, stream} each, as PyTorch's snapshot has
    them. Frees of what was allocated before the history began are left out."""
    live = {}
    for event in events:
        if event["action"] == "alloc" and event["size"] > 0:
            live[event["addr"]] = trace.allocate(event["size"], event["stream"])
        elif event["action"] == _FREED and event["addr"] in live:
            trace.free(live.pop(event["addr"]))
    return trace


def run_as_python_would(words):
    """Runs `PROGRAM ARGUMENT...` or `-m MODULE ARGUMENT...`, and returns its exit code."""
    by_name = words[0] == "-m"
    # The first place to look for modules is the program's folder or the current one, never this tool's.
    sys.path[0] = os.getcwd() if by_name else str(pathlib.Path(words[0]).resolve().parent)
    sys.argv = words[1:] if by_name else words
    try:
        if by_name:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:  # as at the top of Python: the program is over, its trace is not
        traceback.print_exc()
        return 1
    return 0


def record(words, device, entries):
    """Runs a program; returns its trace and its exit code."""
    import torch  # only here: the other tools work without it

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=entries)
    code = run_as_python_would(words)
    if device is None:
        device = torch.cuda.current_device()
    if not getattr(torch._C, "_cuda_isHistoryEnabled", lambda: True)():
        raise SystemExit("record.py: the program switched the history of PyTorch's allocator off: nothing is written")
    events = torch.cuda.memory._snapshot()["device_traces"][device]
    torch.cuda.memory._record_memory_history(enabled=None)
    if len(events) >= entries:
        raise SystemExit(f"record.py: the history is full: more than {entries} events. Say --entries {4 * entries}")
    return write_history(events, trace_writer.Trace()), code


def file_of_rank(out):
    """The file for this process; each of several ranks has its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return out
    stem, dot, kind = out.rpartition(".trace")
    return f"{stem or kind}.rank{os.environ['RANK']}{dot}{kind if stem else ''}"


def split(arguments):
    """Splits the command line into this tool's options, each with a value, and the program's words."""
    place = 0
    while place < len(arguments) and arguments[place].startswith("--"):
        place += 1 if "=" in arguments[place] else 2
    return arguments[:place], arguments[place:]


def main(arguments):
    parser = argparse.ArgumentParser(description="Records the allocations of a PyTorch program.",
                                     usage="record.py [OPTION...] --out FILE [-m] PROGRAM [ARGUMENT...]")
    parser.add_argument("--out", required=True, help="a file named .trace or .trace.xz")
    parser.add_argument("--device", type=int, help="by default the one that is current when the program ends")
    parser.add_argument("--entries", type=int, default=4_000_000, help="of the history, at most")
    own, words = split(arguments)
    options = parser.parse_args(own)
    if words in ([], ["-m"]):
        parser.error("say which program: PROGRAM [ARGUMENT...], or -m MODULE [ARGUMENT...]")
    out = file_of_rank(options.out)
    trace, code = record(words, options.device, options.entries)
    trace.write(out)
    print(f"{out}: {len(trace)} events, peak requested {trace.peak_requested / 2**30:.2f} GiB")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
