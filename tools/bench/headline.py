#!/usr/bin/env python3
"""Prints the figures of the README's first table from the newest lines of tools/bench/results, a row of Markdown each.

usage: headline.py
"""

import json
import pathlib
import statistics
import sys

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
sys.path.insert(0, str(RESULTS.parents[1] / "suites"))

from memory_of_programs import EXPANDABLE, FIXED, NATIVE, SEGMENTS, shares  # noqa: E402  (beside it on no path)


def newest(file, command="", key=None):
    """The last line of a file whose command holds the words, and whose results have the key."""
    lines = [json.loads(line) for line in (RESULTS / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if command in line["command"] and (key is None or key in line["results"])][-1]


def programs():
    """{program of others: {allocator: held for a byte asked for, both at the peak}}, and the day."""
    line = newest("programs-H200", key="programs")
    return {name: shares(found) for name, found in line["results"]["programs"].items()}, _day(line)


def _day(*lines):
    return max(line["date"] for line in lines)[:10]


def _step(file, *keys, key=None):
    """The ratio of two times, and its day."""
    line = newest(file, key=keys[0])
    found = line["results"]
    for name in keys:
        found = found[name]
    return f"{found[key or 'windows / stock']['ratio']:.2f}", line


def rows():
    """What was measured, the figures, and the day of the newest of them."""
    held, day = programs()
    columns = ([of[allocator] for of in held.values()] for allocator in (FIXED, EXPANDABLE, NATIVE, SEGMENTS))
    yield (f"memory held for a byte asked for, {len(held)} programs of others",
           "pool {}, expandable pool {}; PyTorch {}, expandable segments {}".format(
               *(f"{statistics.mean(column):.2f} (at most {max(column):.2f})" for column in columns)), day)
    two, four = _step("torch-ddp-2xH200", "llama", "stock"), _step("torch-ddp-4xH200", "GPT-2 small", "stock")
    yield ("a step of DDP in windows / without",
           f"a compiled Llama of 1B, 2 H200 {two[0]}; GPT-2 small, 4 H200 {four[0]}", _day(two[1], four[1]))
    steps = [_step("torch-fsdp-2xH200", f"{tokens} tokens") for tokens in (4096, 8192, 16384)]
    yield ("a step of FSDP2 in windows / without, a compiled Llama of 1B, 2 H200",
           "{} (4,096 tokens), {} (8,192), {} (16,384)".format(*(ratio for ratio, _ in steps)),
           _day(*(line for _, line in steps)))
    two = _step("torch-decode-2xH200", "decoding", key="windows / plain")
    yield "decoding a token of it in CUDA graphs, the same", two[0], _day(two[1])
    sizes = [_step("torch-decode-2xH200", "all-reduces", size, key="windows / plain")[0]
             for size in ("8 KiB", "32 KiB", "128 KiB", "1 MiB")]
    yield ("an all-reduce of 8 KiB, 32 KiB, 128 KiB, 1 MiB, the same", f"2 H200 {', '.join(sizes)}", _day(two[1]))
    slept = newest("sleep-H200", "run sleep: discarded", "reserved to torch_memory_saver")
    yield ("sleep and wake of 64 GiB / torch_memory_saver's", "{:.2f}, with CUDA graphs {:.2f}".format(
        slept["results"]["reserved to torch_memory_saver"]["ratio"],
        slept["results"]["with graphs to torch_memory_saver"]["ratio"]), _day(slept))


def table():
    """The rows as Markdown."""
    return ["| measured | figures | day |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows())]


if __name__ == "__main__":
    print("\n".join(table()))
