"""Kills processes that share tensors of a pool in torch's own way, at each stage; run by shared_kills_test.py and
tests/torch/hardware_sharing.py.

usage: shared_kills_program.py importers|exporters KILLS
Says what was found at each stage, and what the process that stays has more in the end than after one kill at each
stage. A wait that takes a minute fails.
"""

import collections
import multiprocessing.reduction
import os
import pathlib
import sys

import torch
import torch.multiprocessing

SECONDS = 60
COUNT = 1000
STAGES = ("began", "asked", "answered")
AHEAD = max(1, min(8, os.cpu_count() // 2))  # processes that are started before they are wanted: torch takes seconds


def answer(pipe):
    if not pipe.poll(SECONDS):
        raise RuntimeError(f"no answer within {SECONDS} s")
    return pipe.recv()


def importer(pipe):
    """Has the stock torch alone: opens what comes, reads it, and lets go."""
    pipe.recv()
    torch.cuda.init()
    pipe.send("began")
    while True:
        pipe.send(pipe.recv().sum().item())


def exporter(pipe):
    """Sends a tensor of a pool of its own for each value that comes."""
    pipe.recv()
    import commpool.torch as commpool

    commpool.install()
    pool, tensors = commpool.Pool("shared"), []
    pipe.send("began")
    while True:
        value = pipe.recv()
        with commpool.use_pool(pool):
            tensors.append(torch.full((COUNT,), value, device="cuda"))
        torch.cuda.synchronize()
        pipe.send(tensors[-1])


class Processes:
    """Those of one kind; some more wait, without a context of CUDA."""

    def __init__(self, target):
        self._context, self._target = torch.multiprocessing.get_context("spawn"), target
        self._ahead = collections.deque(self._start() for _ in range(AHEAD))

    def _start(self):
        pipe, theirs = self._context.Pipe()
        process = self._context.Process(target=self._target, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return process, pipe

    def next(self):
        self._ahead.append(self._start())
        process, pipe = self._ahead.popleft()
        pipe.send("begin")
        if answer(pipe) != "began":
            raise RuntimeError("a process did not begin")
        return process, pipe

    def end(self):
        for process, pipe in self._ahead:
            kill(process, pipe)


def kill(process, pipe):
    process.kill()
    process.join(SECONDS)
    if process.exitcode != -9:
        raise RuntimeError(f"a killed process ended with {process.exitcode}")
    # Torch's counters of references: a killed exporter leaves them, whosever its memory is.
    for file in pathlib.Path("/dev/shm").glob(f"torch_{process.pid}_*"):
        file.unlink()
    process.close()
    pipe.close()


def held():
    """Descriptors of this process, and bytes of the device.

    Not the events of sent tensors, which torch keeps until their importer lets go: a killed one never does. They are
    descriptors on the emulator alone.
    """
    torch.cuda.synchronize()
    torch.cuda.ipc_collect()
    links = (pathlib.Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    free, total = torch.cuda.mem_get_info()
    return {"descriptors": sum("emulated-event" not in target for target in targets), "bytes": total - free}


def importers(kills):
    """Importers are killed; the exporter's tensor stays as it is."""
    import commpool.torch as commpool

    commpool.install()
    pool = commpool.Pool("shared")
    with commpool.use_pool(pool):
        tensor = torch.ones(COUNT, device="cuda")
    torch.cuda.synchronize()
    processes = Processes(importer)

    def turn(stage):
        process, pipe = processes.next()
        if stage != "began":
            pipe.send(tensor)
        found = answer(pipe) if stage == "answered" else None
        kill(process, pipe)
        if tensor.sum().item() != COUNT:
            raise RuntimeError("the tensor changed")
        return found

    rounds(kills, turn)
    processes.end()
    print("blocks", pool.stats().allocated_blocks.current, "segments", pool.stats().reserved_segments.current)
    del tensor
    pool.destroy()


def exporters(kills):
    """Exporters are killed; what was mapped stays readable, and what was not mapped is refused."""
    processes = Processes(exporter)

    def turn(stage):
        process, pipe = processes.next()
        value = 2.0
        pipe.send(value)
        if stage == "began":
            kill(process, pipe)
            return None
        if not pipe.poll(SECONDS):
            raise RuntimeError("no handle came")
        message = pipe.recv_bytes()
        if stage == "asked":  # the handle of a process that is dead
            kill(process, pipe)
        try:
            tensor = multiprocessing.reduction.ForkingPickler.loads(message)
        except RuntimeError as error:
            return f"refused: {str(error).splitlines()[0]}"
        if stage == "answered":
            kill(process, pipe)
        return tensor.sum().item()

    rounds(kills, turn)
    processes.end()


def rounds(kills, turn):
    """The stages in turn. What the first of each left is torch's own set-up."""
    found, before = {}, None
    for number in range(kills):
        stage = STAGES[number % len(STAGES)]
        found.setdefault(stage, []).append(turn(stage))
        if number == len(STAGES) - 1:
            before = held()
    left = {name: count - before[name] for name, count in held().items()}
    for stage, answers in found.items():
        print(stage, len(answers), *sorted(set(map(str, answers))), sep=", ")
    print("left", left)


if __name__ == "__main__":
    {"importers": importers, "exporters": exporters}[sys.argv[1]](int(sys.argv[2]))
