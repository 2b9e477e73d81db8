"""What CuPy's, RMM's and Numba's allocations cost from a pool, beside their own pools in the same run. A minute or two.

usage: hardware_times.py [--record FILE]
Python callbacks are shown apart: they have no goal.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import traceback

import torch

import commpool

from hardware_measure import in_turn, ratio, record, report

ROUNDS, PAIRS, GOAL = 40, 1000, 1.25
SIZES = {"512 B": 512, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
_PAIRS_PROGRAM = "build/pairs"


def pairs(allocate, nbytes):
    """Nanoseconds of an allocation and the end of what it returned."""
    begin = time.perf_counter_ns()
    for _ in range(PAIRS):
        allocate(nbytes)
    return (time.perf_counter_ns() - begin) / PAIRS


def compared(library, own, contenders, goals, size):
    """Rounds of a library's own pool and ours; what is recorded of them."""
    in_turn(contenders, 2)  # warm
    return judged(library, own, in_turn(contenders, ROUNDS), goals, size)


def judged(library, own, times, goals, size):
    medians = {name: statistics.median(of) for name, of in times.items()}
    print(f"{library} {size}: " + ", ".join(f"{name} {of:.0f} ns" for name, of in medians.items()), flush=True)
    found = {"ns": medians}
    for name, goal in goals.items():
        measured = ratio(times, name, own)
        if goal is None:
            print(f"   {name} / {own}: {measured['ratio']:.2f} (shown apart)")
            found[name] = measured
        else:
            found[name] = report(f"{library} {size}: {name} / {own}", measured, goal)
    return found


def of_no_memory(cupy):
    """What CuPy itself takes to call functions in C: these return their first argument, and touch nothing."""
    import ctypes

    memset = ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value  # of device 0, so of 0 bytes
    return cupy.cuda.CFunctionAllocator(64, memset, memset, None).malloc


def of_cupy():
    try:
        import cupy
    except ImportError as error:
        return skipped("CuPy", error)
    import commpool.cupy

    pool, own, results = commpool.Pool("cupy"), cupy.cuda.MemoryPool(), {}
    pool.reserve("256MiB")
    allocators = {"CuPy's pool": own.malloc, "commpool": commpool.cupy.allocator(pool),
                  "commpool, in Python": commpool.cupy.allocator(pool, path="python")}
    goals = {"commpool": GOAL if commpool.cupy.why_not_c() == "" else None, "commpool, in Python": None}
    allocators["no allocator"] = of_no_memory(cupy)
    goals["no allocator"] = None
    with cupy.cuda.Stream(non_blocking=True):
        for size, nbytes in SIZES.items():
            contenders = {name: lambda call=call: pairs(call, nbytes) for name, call in allocators.items()}
            results[size] = compared("CuPy", "CuPy's pool", contenders, goals, size)
    return results


def of_rmm():
    """In Python: the resource in C++, and RMM's callbacks."""
    sys.path.append(os.environ.get("PYTHONPATH_OF_RMM", ""))
    try:
        import rmm
    except ImportError as error:
        return skipped("RMM in Python", error)
    import commpool.rmm

    pool, results = commpool.Pool("rmm"), {}
    pool.reserve("256MiB")
    resources = {"RMM's pool": rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 30),
                 "commpool, in Python": commpool.rmm.resource(pool, path="python")}
    goals = {"commpool, in Python": None}
    try:
        resources["commpool"], goals["commpool"] = commpool.rmm.resource(pool, path="c++"), GOAL
    except commpool.NotSupported as reason:
        print(f"skipped RMM's resource in C++: {reason}", flush=True)

    def pair(resource, nbytes):
        resource.deallocate(resource.allocate(nbytes), nbytes)

    for size, nbytes in SIZES.items():
        contenders = {name: lambda of=of: pairs(lambda count: pair(of, count), nbytes)
                      for name, of in resources.items()}
        results[size] = compared("RMM in Python", "RMM's pool", contenders, goals, size)
    return results


def of_rmm_in_cxx():
    if not os.path.exists(_PAIRS_PROGRAM):
        return skipped("RMM in C++", f"no {_PAIRS_PROGRAM}: the part `compiled` makes it")
    output = subprocess.run([_PAIRS_PROGRAM, str(ROUNDS), "2000"], capture_output=True, text=True, check=True,
                            timeout=120).stdout
    results = {}
    for line in output.splitlines():
        times = json.loads(line)
        size = {nbytes: name for name, nbytes in SIZES.items()}[times.pop("bytes")]
        results[size] = judged("RMM in C++", "RMM's pool", times, {"commpool": GOAL}, size)
    return results


_NUMBA = """
import sys, time
import numba.cuda
allocate = numba.cuda.current_context().memalloc
for line in sys.stdin:
    nbytes, pairs = map(int, line.split())
    begin = time.perf_counter_ns()
    for _ in range(pairs):
        allocate(nbytes)
    print((time.perf_counter_ns() - begin) / pairs, flush=True)
"""


def of_numba():
    """A process for each memory manager: Numba has one in its life. They take turns."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        return skipped("Numba", error)
    processes, results = {}, {}
    for name, variables in (("Numba's own", {}), ("commpool", {"NUMBA_CUDA_MEMORY_MANAGER": "commpool.numba"})):
        processes[name] = subprocess.Popen([sys.executable, "-c", _NUMBA], stdin=subprocess.PIPE, text=True,
                                           stdout=subprocess.PIPE, env={**os.environ, **variables})

    def ask(process, nbytes):
        process.stdin.write(f"{nbytes} {PAIRS // 10}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    for size, nbytes in SIZES.items():
        contenders = {name: lambda of=of: ask(of, nbytes) for name, of in processes.items()}
        results[size] = compared("Numba", "Numba's own", contenders, {"commpool": GOAL}, size)
    for process in processes.values():
        process.stdin.close()
        process.wait(60)
    return results


def skipped(library, reason):
    print(f"skipped {library}: {reason}", flush=True)
    return {"skipped": str(reason)}


def main():
    """One library that fails keeps no other from its figures."""
    torch.empty(1, device="cuda")
    results = {}
    for name, measure in (("cupy", of_cupy), ("rmm", of_rmm), ("rmm_cxx", of_rmm_in_cxx), ("numba", of_numba)):
        try:
            results[name] = measure()
        except Exception:
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            results[name] = {"failed": traceback.format_exc(limit=-1)}
    record("run_libraries times", results)
    return 1 if any("failed" in of for of in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
