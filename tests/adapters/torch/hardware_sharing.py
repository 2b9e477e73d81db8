"""Tensors of pools in other processes, by torch's own way: the cases of tests/python/torch, kills of either side, and
the time from a handle to the first byte on the host. A pool's tensors stand beside PyTorch's, whose importing code is
the same: cudaMalloc's beside its plain ones, pages beside those of expandable segments. All turns are of one pair of
processes, and each maps the memory anew.

usage: hardware_sharing.py [--kills N] [--record FILE] [--tiny]
  --kills  of importers, and as many of exporters (100)
"""

import multiprocessing.reduction
import sys
import time
import unittest

import torch
import torch.multiprocessing

from hardware_measure import in_turn, ratio, record, report

TINY = "--tiny" in sys.argv
KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 3 if TINY else 100
BYTES, ROUNDS = (1 << 21, 3) if TINY else (1 << 26, 200)
GOAL = 1.05  # the importing code is PyTorch's own


def importer(pipe):
    """Has the stock torch alone: answers each handle with the seconds until the first byte was here."""
    torch.cuda.init()
    while message := pipe.recv_bytes():
        start = time.perf_counter()
        tensor = multiprocessing.reduction.ForkingPickler.loads(message)
        first = tensor[0].item()
        seconds = time.perf_counter() - start
        del tensor
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        pipe.send((seconds, first))


def tensors_beside(commpool, pools):
    """{contender: a tensor in memory of its own}, filled with its number."""
    made = {}

    def make(name):
        made[name] = torch.full((BYTES,), len(made), dtype=torch.uint8, device="cuda")

    make("torch's plain")
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    make("torch's expandable")
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    for backing, pool in pools.items():
        with commpool.use_pool(pool):
            make(backing)
    torch.cuda.synchronize()
    return made


def opening():
    import commpool.torch as commpool

    commpool.install()
    pools = {backing: commpool.Pool(backing, backing=backing) for backing in ("cuda", "vmm")}
    tensors = tensors_beside(commpool, pools)
    context = torch.multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=importer, args=(theirs,))
    process.start()

    def contender(number, tensor):
        def turn():
            pipe.send_bytes(bytes(multiprocessing.reduction.ForkingPickler.dumps(tensor)))
            seconds, first = pipe.recv()
            assert first == number, f"the first byte is {first}, and has to be {number}"
            torch.cuda.ipc_collect()
            return seconds
        return turn

    contenders = {name: contender(number, tensor) for number, (name, tensor) in enumerate(tensors.items())}
    in_turn(contenders, 2)  # the first ones start torch's machinery
    times = in_turn(contenders, ROUNDS)
    pipe.send_bytes(b"")
    process.join()
    contenders.clear()
    tensors.clear()
    torch.cuda.ipc_collect()
    for pool in pools.values():
        pool.destroy()
    for name, taken in times.items():
        print(f"{name:<58} {1e3 * sorted(taken)[len(taken) // 2]:10.3f} ms", flush=True)
    return {
        "cuda to torch's plain": report("from a handle to the first byte: cuda to torch's plain",
                                        ratio(times, "cuda", "torch's plain"), GOAL),
        "vmm to torch's expandable": report("from a handle to the first byte: vmm to torch's expandable",
                                            ratio(times, "vmm", "torch's expandable"), GOAL),
        "vmm to torch's plain": ratio(times, "vmm", "torch's plain"),
        "ms": {name: 1e3 * sorted(taken)[len(taken) // 2] for name, taken in times.items()},
    }


def cases():
    """Whether those of tests/python/torch pass, with so many kills."""
    import shared_kills_test

    shared_kills_test.KILLS = KILLS
    suite = unittest.defaultTestLoader.loadTestsFromNames(["shared_pools_test", "shared_kills_test"])
    return unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()


def main():
    passed = cases()
    record("run sharing", {"bytes": BYTES, "kills_of_a_side": KILLS, "cases_passed": passed, "opening": opening()})
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
