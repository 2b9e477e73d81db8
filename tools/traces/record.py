#!/usr/bin/env python3
"""Records the allocations of a PyTorch program for `commpool replay`.

usage: record.py [--device N] [--entries N] --out FILE.trace.xz PROGRAM [ARGUMENT...]
Runs the program as `python PROGRAM ARGUMENT...` would, with the history of PyTorch's allocator switched on, and writes
what it asked for and gave back on the device: sizes as requested, streams numbered by first use. Blocks that outlive
the program are never freed in the trace. Needs PyTorch and a GPU.
"""

import argparse
import runpy
import sys

import trace_writer

# What the allocator notes when the program frees. The memory may be reused later, when other streams are done with it.
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


def record(program, arguments, device, entries):
    """The trace of a program that is run here and now."""
    import torch  # only here: the rest of the tools does without

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=entries)
    sys.argv = [program, *arguments]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0):
            raise
    torch.cuda.synchronize(device)
    events = torch.cuda.memory._snapshot()["device_traces"][device]
    torch.cuda.memory._record_memory_history(enabled=None)
    if len(events) >= entries:
        raise SystemExit(f"record.py: the history is full: more than {entries} events. Say --entries {4 * entries}")
    return write_history(events, trace_writer.Trace())


def main(arguments):
    parser = argparse.ArgumentParser(description="Records the allocations of a PyTorch program.")
    parser.add_argument("--out", required=True, help="a file named .trace or .trace.xz")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--entries", type=int, default=4_000_000, help="of the history, at most")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    trace = record(options.program, options.arguments, options.device, options.entries)
    trace.write(options.out)
    print(f"{options.out}: {len(trace)} events, peak requested {trace.peak_requested / 2**30:.2f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
