"""Tensors of pools in other processes, by torch's own way: the cases of tests/python/torch, kills of either side, and
the time from a handle, or a ticket, to the first byte on the host. A pool's tensors stand beside PyTorch's, whose
importing code is the same: cudaMalloc's beside its plain ones, pages beside those of expandable segments. A ticket
stands beside both. All turns are of one pair of processes, and each maps the memory anew.

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
OF_TICKET = 1.0


def first_of_handle(message):
    """The first byte of a tensor that torch's own handle opens, and what lets it go."""
    tensor = multiprocessing.reduction.ForkingPickler.loads(message)
    return tensor[0].item(), torch.cuda.ipc_collect


def first_of_ticket(ticket):
    """The same of a ticket."""
    import commpool.torch as commpool

    shared = commpool.Pool.import_(ticket)
    block = shared.block(ticket, mutable=False)  # its owner has said so; torch's own way knows no updates
    with block.read():
        first = block.tensor(BYTES, torch.uint8)[0].item()
    return first, shared.close


def importer(pipe):
    """Answers each handle and ticket with the seconds until the first byte was here."""
    torch.cuda.init()
    while (message := pipe.recv()) is not None:
        start = time.perf_counter()
        first, let_go = (first_of_ticket if isinstance(message, str) else first_of_handle)(message)
        seconds = time.perf_counter() - start
        torch.cuda.synchronize()
        let_go()
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
    for name, pool in pools.items():
        with commpool.use_pool(pool):
            make(name)
    torch.cuda.synchronize()
    return made


def opening():
    import commpool.torch as commpool

    commpool.install()
    pools = {name: commpool.Pool(name, backing=backing)
             for name, backing in (("cuda", "cuda"), ("vmm", "vmm"), ("ticket", "vmm"))}
    tensors = tensors_beside(commpool, pools)
    context = torch.multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=importer, args=(theirs,))
    process.start()

    ticket = pools["ticket"].share(tensors["ticket"], mutable=False)

    def contender(number, name, tensor):
        def turn():
            pipe.send(ticket if name == "ticket" else bytes(multiprocessing.reduction.ForkingPickler.dumps(tensor)))
            seconds, first = pipe.recv()
            assert first == number, f"the first byte is {first}, and has to be {number}"
            torch.cuda.ipc_collect()
            return seconds
        return turn

    contenders = {name: contender(number, name, tensor) for number, (name, tensor) in enumerate(tensors.items())}
    in_turn(contenders, 2)  # the first ones start torch's machinery
    times = in_turn(contenders, ROUNDS)
    pipe.send(None)
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
        **{f"ticket to {theirs}": report(f"from a ticket to the first byte, to {theirs}",
                                         ratio(times, "ticket", theirs), OF_TICKET)
           for theirs in ("torch's plain", "torch's expandable")},
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
