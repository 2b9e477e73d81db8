"""Sleep on a GPU, in seconds of pause and resume together: of tensors that live graphs use, beside the same without
graphs and beside torch_memory_saver, which has a handle and calls for each allocation; of tensors that are kept on the
host; waking from pinned memory beside a plain copy; and waking from files beside the disk's own rate. Only one
contender's tensors are awake at a time.

usage: hardware_sleep.py [--parts NAME,NAME] [--gib GIB] [--kept-gib GIB] [--pinned-gib GIB] [--file-gib GIB]
                         [--directory DIR] [--record FILE] [--tiny]
  --parts      of discarded, pinned, files and kept (all)
  --gib        of the tensors that are discarded (64), kept on the host (32), copied from pinned memory (8), and kept in
               a file (8)
  --directory  on a disk, for files (here)
"""

import mmap
import os
import sys
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, ratio, record, report

TINY = "--tiny" in sys.argv
MIB, GIB = 1 << 20, 1 << 30
TENSORS, GRAPHS, ROUNDS, KEPT_ROUNDS, FILE_ROUNDS = (10, 2, 3, 3, 3) if TINY else (1000, 20, 12, 4, 16)


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


BYTES, KEPT_BYTES, PINNED_BYTES, FILE_BYTES = (
    64 * MIB if TINY else int(option(name, gib)) * GIB
    for name, gib in (("--gib", 64), ("--kept-gib", 32), ("--pinned-gib", 8), ("--file-gib", 8)))
# The driver clears what was given back, for a tenth of a second: who asks for memory meanwhile waits for that.
CLEARING_SECONDS = 0 if TINY else 0.5
DIRECTORY = option("--directory", os.getcwd())


def seconds_of(act):
    time.sleep(CLEARING_SECONDS)
    torch.cuda.synchronize()
    start = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def tensors_of(nbytes):
    return [torch.ones(nbytes // TENSORS, dtype=torch.uint8, device="cuda") for _ in range(TENSORS)]


def check_ends(tensors, wanted):
    for tensor in tensors:
        ends = tensor[0].item(), tensor[-1].item()
        assert ends == (wanted, wanted), f"a tensor holds {ends} at its ends, and has to hold {wanted}"


class Ours:
    """A pool of so many bytes in tensors, asleep between its turns."""

    def __init__(self, name, nbytes, graphs=0, reserve=0, **keep):
        self.pool, self.keep = commpool.Pool(name), keep
        if reserve:
            self.pool.reserve(reserve)
        with commpool.use_pool(self.pool):
            self.tensors = tensors_of(nbytes)
        self.graphs = [self.capture(self.tensors[number::graphs]) for number in range(graphs)]
        self.pool.sleep(**self.keep)

    @staticmethod
    def capture(tensors):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for tensor in tensors:
                tensor.fill_(5)
        return graph

    def turn(self):
        self.wake_seconds = seconds_of(self.pool.wake)
        return self.wake_seconds + seconds_of(lambda: self.pool.sleep(**self.keep))

    def check(self):
        """Awake: each tensor, through its graph where there is one."""
        self.pool.wake()
        for tensor in self.tensors if self.graphs else ():
            tensor.fill_(4)
        for graph in self.graphs:
            graph.replay()
        wanted = 5 if self.graphs else 1
        if self.graphs or self.keep:
            check_ends(self.tensors, wanted)

    def end(self):
        self.graphs.clear()
        self.tensors.clear()
        self.pool.destroy()


class Theirs:
    """torch_memory_saver, by PyTorch's pluggable allocator."""

    def __init__(self, saver, tag, nbytes, backup):
        self.saver, self.tag, self.backup = saver, tag, backup
        with saver.region(tag=tag, enable_cpu_backup=backup):
            self.tensors = tensors_of(nbytes)
        saver.pause(tag)

    def turn(self):
        taken = seconds_of(lambda: self.saver.resume(self.tag))
        return taken + seconds_of(lambda: self.saver.pause(self.tag))

    def check(self):
        self.saver.resume(self.tag)
        if self.backup:
            check_ends(self.tensors, 1)

    def end(self):
        self.tensors.clear()


def their_saver():
    """Nothing where it is not installed, or on the emulator, where its library finds no runtime that it knows."""
    try:
        from torch_memory_saver import torch_memory_saver
    except ImportError as error:
        print(f"skipped: torch_memory_saver: {error}", flush=True)
        return None
    torch_memory_saver.hook_mode = "torch"
    return torch_memory_saver


def compare(contenders, rounds):
    times = in_turn({name: contender.turn for name, contender in contenders.items()}, rounds)
    for contender in contenders.values():
        contender.check()
        contender.end()
    torch.cuda.empty_cache()
    for name, taken in times.items():
        print(f"{name:<58} {1e3 * sorted(taken)[len(taken) // 2]:10.2f} ms", flush=True)
    return times


def discarded(saver):
    # Reserved, the tensors lie in one segment; else each of them has one.
    contenders = {"with graphs": Ours("with graphs", BYTES, GRAPHS), "without": Ours("without", BYTES),
                  "reserved": Ours("reserved", BYTES, GRAPHS, reserve=BYTES + BYTES // 64)}
    if saver is not None:
        contenders["torch_memory_saver"] = Theirs(saver, "discarded", BYTES, False)
    times = compare(contenders, ROUNDS)
    found = {"graphs to none": report(f"{GRAPHS} live graphs, to none", ratio(times, "with graphs", "without"), 1.1)}
    if saver is not None:
        for name in ("with graphs", "reserved"):
            found[f"{name} to torch_memory_saver"] = report(f"discarded: {name}, to torch_memory_saver",
                                                            ratio(times, name, "torch_memory_saver"), 1 / 3)
    return found


def kept(saver):
    contenders = {"commpool": Ours("kept", KEPT_BYTES, keep="host")}
    if saver is not None:
        contenders["torch_memory_saver"] = Theirs(saver, "kept", KEPT_BYTES, True)
    times = compare(contenders, KEPT_ROUNDS)
    if saver is None:
        return {}
    return {"to torch_memory_saver": report("kept on the host: commpool to torch_memory_saver",
                                            ratio(times, "commpool", "torch_memory_saver"), 1)}


def beside(name, sleeper, nbytes, act, rounds):
    """Waking, in turn with something else that moves as many bytes: the ratio of their times."""

    def wake():
        sleeper.turn()
        return sleeper.wake_seconds

    times = in_turn({"wake": wake, name: act}, rounds)
    sleeper.check()
    sleeper.end()
    for who, taken in times.items():
        print(f"{who:<58} {nbytes / sorted(taken)[len(taken) // 2] / 1e9:10.2f} GB/s", flush=True)
    return ratio(times, "wake", name)


def from_pinned():
    """Waking from copies that stay pinned, beside one copy from pinned memory to memory that is mapped."""
    sleeper = Ours("pinned", PINNED_BYTES, keep="host", retain=True)
    source = torch.ones(PINNED_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device="cuda")
    found = beside("copy", sleeper, PINNED_BYTES, lambda: seconds_of(lambda: target.copy_(source, non_blocking=True)),
                   ROUNDS)
    return {"to a plain copy": report("waking from pinned memory: its time to that of a copy", found, 1 / 0.95)}


def read_seconds(path, nbytes):
    """One reader, past the system's cache."""
    buffer = mmap.mmap(-1, 16 * MIB)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    start, offset = time.perf_counter(), 0
    while offset < nbytes:
        offset += os.preadv(file, [buffer], offset)
    taken = time.perf_counter() - start
    os.close(file)
    return taken


def from_files():
    """Waking from a file of the library's own, beside a read of a file of as many bytes, in each round."""
    nbytes, path = FILE_BYTES, os.path.join(DIRECTORY, "plain_read")
    sleeper = Ours("files", nbytes, keep="files", directory=DIRECTORY)
    with open(path, "wb") as file:
        for _ in range(nbytes // MIB):
            file.write(os.urandom(4096) * 256)
        file.flush()
        os.fsync(file.fileno())
    try:
        found = beside("read", sleeper, nbytes, lambda: read_seconds(path, nbytes), FILE_ROUNDS)
    finally:
        os.unlink(path)
    return {"to the disk's own rate": report("waking from a file: its time to that of a read", found, 1 / 0.8)}


def main():
    saver = None if TINY else their_saver()
    parts = {"discarded": (BYTES, lambda: discarded(saver)), "pinned": (PINNED_BYTES, from_pinned),
             "files": (FILE_BYTES, from_files), "kept": (KEPT_BYTES, lambda: kept(saver))}
    for name in option("--parts", ",".join(parts)).split(","):
        nbytes, act = parts[name]
        record(f"run sleep: {name}", {"bytes": nbytes, "tensors": TENSORS, **act()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
