"""What commpool.torch costs on the host: torch.empty out of and in a scope, and a scope itself. Minutes.

usage: hardware_times.py [--record FILE]
"""

import gc
import statistics
import time

import torch

import commpool.torch as commpool

from hardware_measure import in_turn, pin_to_a_quiet_core, ratio, record, report

ROUNDS, BURSTS, PAIRS = 300, 5, 200
SIZES = {"512 B": 512, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def quickest(burst):
    """Nanoseconds of one of PAIRS, in the quickest of a few bursts: an interrupt makes others slower, none quicker."""
    times = []
    for _ in range(BURSTS):
        begin = time.perf_counter_ns()
        burst()
        times.append((time.perf_counter_ns() - begin) / PAIRS)
    return min(times)


def pairs(nbytes):
    """Nanoseconds of a torch.empty and its end."""
    empty, device = torch.empty, torch.device("cuda", 0)

    def burst():
        for _ in range(PAIRS):
            empty(nbytes, dtype=torch.uint8, device=device)

    return quickest(burst)


def without_router(nbytes):
    if not commpool.uninstall():
        raise RuntimeError("blocks of ours are alive")
    result = pairs(nbytes)
    commpool.install()
    return result


def in_scope(pool, nbytes):
    with commpool.use_pool(pool):
        return pairs(nbytes)


def empties(pool):
    results = {}
    for name, nbytes in SIZES.items():
        contenders = {
            "native": lambda: without_router(nbytes),
            "native again": lambda: without_router(nbytes),
            "outside": lambda: pairs(nbytes),
            "in a scope": lambda: in_scope(pool, nbytes),
        }
        in_turn(contenders, 2)  # warm
        times = in_turn(contenders, ROUNDS)
        print(f"{name}: " + ", ".join(f"{who} {statistics.median(of):.0f} ns" for who, of in times.items()))
        found = {"ns": {who: statistics.median(of) for who, of in times.items()}}
        for key, who, goal in [("noise", "native again", 1.01), ("outside", "outside", 1.01),
                               ("in_scope", "in a scope", 0.95)]:
            found[key] = report(f"torch.empty {name}: {who} / native", ratio(times, who, "native"), goal)
        results[name] = found
    return results


def scopes(pool):
    theirs = torch.cuda.MemPool()
    use_pool, use_mem_pool = commpool.use_pool, torch.cuda.use_mem_pool

    def ours():
        for _ in range(PAIRS):
            with use_pool(pool):
                pass

    def torchs():
        for _ in range(PAIRS):
            with use_mem_pool(theirs):
                pass

    contenders = {"use_pool": lambda: quickest(ours), "use_mem_pool": lambda: quickest(torchs)}
    in_turn(contenders, 2)
    times = in_turn(contenders, ROUNDS)
    medians = {who: statistics.median(of) for who, of in times.items()}
    print("scope: " + ", ".join(f"{who} {of:.0f} ns" for who, of in medians.items()))
    found = ratio(times, "use_pool", "use_mem_pool")
    return {"ns": medians, "scope": report("scope: use_pool / torch.cuda.use_mem_pool", found, 0.2)}


def main():
    torch.empty(1, device="cuda")
    print(f"on core {pin_to_a_quiet_core()}")
    gc.disable()
    commpool.install()
    pool = commpool.Pool("times")
    record("tests/adapters/torch/hardware_times.py", {"empty": empties(pool), "scopes": scopes(pool)})


if __name__ == "__main__":
    main()
