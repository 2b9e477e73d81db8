"""NIXL and UCX move what pools have registered with them: from another process, before and after both sleep, and as
fast as memory of cudaMalloc. Both hear of the same segments.

usage: hardware_registrars.py [--record FILE] [--tiny]

Skipped where NIXL's package (nixl-cu13) is not there. Two GPUs, or one; --tiny moves memory of the host.
UCX_PROTO_INFO=y in the environment shows which way UCX takes.
"""

import ctypes
import importlib
import multiprocessing
import os
import sys
import time

import torch

import commpool
import commpool.registrars

from hardware_measure import ratio, record, report, until_narrow
from hardware_ucx import UcxSide

TINY = "--tiny" in sys.argv
BYTES = 1 << 22 if TINY else 1 << 28
SECONDS, HALF_WIDTH, GOAL = (1 if TINY else 15), 0.01, 1.05
MEMORY, PLAIN = ("DRAM", "malloc") if TINY else ("VRAM", "cudaMalloc")
AGAIN = f"{PLAIN} again"
# Of pools: what the time of PLAIN, memory that no pool has, is compared with. AGAIN is more such memory: its ratio
# tells what the measurement itself does.
POOLS = ({"pinned": {"backing": "pinned"}, "numa": {"location": "host_numa"}} if TINY else
         {"cuda": {"backing": "cuda"}, "vmm": {"backing": "vmm"}})
SLEEPER = "numa" if TINY else "vmm"
BEFORE, AFTER = 7, 17  # what the first kind's bytes are; those of the next ones count up


def nixl_module():
    """NIXL's package under one of its names; None where it is not there."""
    for name in ("nixl_cu13", "nixl_cu12", "nixl"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def tensor_of(array):
    """A view: of the host's memory where torch has no device to look for."""
    if TINY:
        return torch.frombuffer((ctypes.c_uint8 * BYTES).from_address(array.pointer), dtype=torch.uint8)
    return torch.from_dlpack(array)


class Side:
    """One of the two processes: an agent, a context of UCX, and memory of each kind that is registered with both."""

    def __init__(self, name, device):
        if not TINY:
            torch.cuda.set_device(device)
        self.device, self.agent = device, nixl_module().nixl_agent(name)
        place = "cpu" if TINY else f"cuda:{device}"
        self.tensors = {kind: torch.empty(BYTES, dtype=torch.uint8, device=place) for kind in (PLAIN, AGAIN)}
        self.ucx = UcxSide(os.path.dirname(nixl_module().__file__))
        self.of_ucx = {kind: commpool.registrars.Ucx(self.ucx.context.value, self.ucx.path, paths="any")
                       for kind in (PLAIN, AGAIN, *POOLS)}
        traits = commpool.registrars.SegmentTraits(device, "cuda", "host_numa" if TINY else "device", -1, 1,
                                                   False, False, False, False)
        for kind, tensor in self.tensors.items():
            self.agent.register_memory(tensor)
            self.of_ucx[kind].add_of(traits, tensor.data_ptr(), BYTES)
        self.pools = {kind: commpool.Pool(kind, device=device, **options) for kind, options in POOLS.items()}
        self.arrays, self.eligible = [], {AGAIN: (True, "")}
        for kind, pool in self.pools.items():
            with commpool.use_pool(pool):
                self.arrays.append(commpool.empty((BYTES,), "uint8", device=device))
            self.tensors[kind] = tensor_of(self.arrays[-1])
            self.eligible[kind] = tuple(pool.eligible("nixl"))
            pool.add_registrar(commpool.registrars.Nixl(self.agent, paths="any"))  # slow ones too: they are measured
            pool.add_registrar(self.of_ucx[kind])

    def fill(self, value):
        for number, tensor in enumerate(self.tensors.values()):
            tensor.fill_(value + number if value else 0)
        if not TINY:
            torch.cuda.synchronize(self.device)

    def sleep_and_wake(self):
        """Whether no registration outlived the memory, and each came back."""
        pool = self.pools[SLEEPER]
        before = pool.stats().registered_segments
        pool.sleep(keep="host")
        asleep = pool.stats().registered_segments
        pool.wake()
        return (before, asleep, pool.stats().registered_segments) == (2, 0, 2)

    def places(self):
        return {kind: (tensor.data_ptr(), BYTES, self.device) for kind, tensor in self.tensors.items()}

    def handle(self, kind):
        """UCX's handle of that memory, which is one segment."""
        handle, = self.of_ucx[kind].handles.values()
        return handle

    def introduction(self):
        """What the other process has to know in order to read, and again after a sleep."""
        keys = {kind: self.ucx.key_of(self.handle(kind)) for kind in self.tensors}
        return self.agent.get_agent_metadata(), keys, self.places(), self.ucx.address()

    def close(self):
        self.tensors.clear()
        self.arrays.clear()
        for pool in self.pools.values():
            pool.close()
            pool.destroy()


def finish(code):
    """Ends the process at once: where it ends by itself NIXL 1.5.1 crashes, also without a pool."""
    sys.stdout.flush()
    os._exit(code)


def owner(pipe, device):
    """The other process: owns what is read, and does what it is told."""
    side = Side("owner", device)
    side.fill(BEFORE)
    pipe.send(side.introduction())
    while True:
        while not pipe.poll():
            side.ucx.progress()
        if pipe.recv() != "sleep":
            break
        slept = side.sleep_and_wake()
        side.fill(AFTER)  # who reads what was there before reads memory that has gone
        pipe.send((slept, side.introduction()))
    side.close()
    finish(0)


class Reader:
    """Reads the owner's memory of a kind into its own of that kind."""

    def __init__(self, side, introduction):
        self.side, self.peer = side, None
        self.side.ucx.connect(introduction[-1])
        self.meet(introduction)

    def meet(self, introduction):
        """Learns the owner's registrations, instead of those that it knew."""
        if self.peer is not None:
            self.side.agent.remove_remote_agent(self.peer)
        metadata, keys, self.places, _ = introduction
        self.peer = self.side.agent.add_remote_agent(metadata)
        self.keys = {kind: self.side.ucx.unpacked(key) for kind, key in keys.items()}

    def read_by_nixl(self, kind):
        """Seconds of one transfer."""
        agent = self.side.agent
        mine, theirs = (agent.get_xfer_descs([places[kind]], MEMORY) for places in (self.side.places(), self.places))
        handle = agent.initialize_xfer("READ", mine, theirs, self.peer)
        start = time.perf_counter()
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        seconds = time.perf_counter() - start
        agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(f"the transfer of {kind} memory ended as {state}")
        return seconds

    def read_by_ucx(self, kind):
        """Seconds of one transfer."""
        return self.side.ucx.read(self.side.places()[kind][0], self.side.handle(kind), self.places[kind][0],
                                  self.keys[kind], BYTES)

    def ways(self):
        return {"nixl": self.read_by_nixl, "ucx": self.read_by_ucx}

    def bytes_are_right(self, value):
        """By the way and the kind of memory."""
        found = {}
        for way, read in self.ways().items():
            self.side.fill(0)
            for number, (kind, tensor) in enumerate(self.side.tensors.items()):
                read(kind)
                found[f"{way} {kind}"] = bool((tensor == value + number).all())
        return found


def compared(reader, way, read):
    """Each pool's time of a transfer to that of memory of no pool."""

    def a_round(order):
        read(order[0])  # not counted: between rounds the way rests, and the next transfer takes another time
        return [read(each) for each in order]

    found = {}
    for kind in (AGAIN, *POOLS):
        times = until_narrow(a_round, kind, PLAIN, SECONDS, HALF_WIDTH)
        found[kind] = report(f"{way}: {kind} to {PLAIN}", ratio(times, kind, PLAIN), GOAL)
        rates = {each: BYTES / 1e9 / sorted(taken)[len(taken) // 2] for each, taken in times.items()}
        print("  " + ", ".join(f"{each} {rate:.1f} GB/s" for each, rate in rates.items()), flush=True)
        eligible, reason = reader.side.eligible[kind]
        if not eligible:
            print(f"  not eligible: {reason}", flush=True)
        found[kind].update(gb_per_s=rates, eligible=eligible, reason=reason)
    return found


def main():
    if nixl_module() is None:
        print("skipped: NIXL's package is not there (pip install nixl-cu13)", flush=True)
        return
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    devices = 1 if TINY else torch.cuda.device_count()
    process = context.Process(target=owner, args=(theirs, min(devices, 2) - 1), daemon=True)
    process.start()
    theirs.close()  # so that recv() ends where the owner does
    reader = Reader(Side("reader", 0), pipe.recv())
    held = {"bytes": reader.bytes_are_right(BEFORE)}
    pipe.send("sleep")
    slept, introduction = pipe.recv()
    held["registered_once"] = slept and reader.side.sleep_and_wake()
    reader.meet(introduction)
    held["bytes_after_sleep"] = reader.bytes_are_right(AFTER)
    print(held, flush=True)
    results = {"bytes": BYTES, "devices": min(devices, 2), "held": held,
               "of_pools": {way: compared(reader, way, read) for way, read in reader.ways().items()}}
    pipe.send("end")
    process.join()
    reader.side.close()
    record("run registrars", results)
    passed = all(all(one.values()) if isinstance(one, dict) else one for one in held.values())
    finish(0 if passed and process.exitcode == 0 else 1)


if __name__ == "__main__":
    main()
