"""Streams that CuPy programs make and destroy, on a GPU: a loop that used to crash, and 20,000 streams in random use.

A stream dies with its Python object, work pending; its blocks are freed later, and its handle comes back at once.

usage: hardware_streams.py [--streams NUMBER] [--record FILE]
"""

import random
import sys
import threading
import time

import cupy
from hardware_measure import record

import commpool
import commpool.cupy

MIB = 1 << 20
STREAMS = int(sys.argv[sys.argv.index("--streams") + 1]) if "--streams" in sys.argv else 20000
STEP = STREAMS // 20
SIZES = (1000, 40000, MIB, 3 * MIB, 8 * MIB)


def loop(mode):
    """A stream for each array, which outlives it: the peak of reserved MiB, and the host's waits."""
    with commpool.Pool("loop", mode=mode) as pool:
        cupy.cuda.set_allocator(commpool.cupy.allocator(pool))
        array = None
        for _ in range(40):
            with cupy.cuda.Stream(non_blocking=True):
                array = cupy.ones(3 * MIB, dtype="int8")
        zeros = cupy.zeros(5 * MIB, dtype="int8")
        assert int(zeros.sum()) == 0 and int(array.sum()) == 3 * MIB
        del array, zeros
        return finish(pool)


def finish(pool):
    cupy.cuda.set_allocator(None)
    cupy.cuda.Device().synchronize()
    stats = pool.stats()
    pool.trim()
    assert pool.stats().reserved_bytes.current == 0
    return {"reserved_peak_mib": stats.reserved_bytes.peak // MIB, "in_use_peak_mib": stats.allocated_bytes.peak // MIB,
            "host_waits": stats.host_waits}


def churn(pool, seed, streams, reserved, wrong):
    """Makes and destroys streams, and keeps some of their arrays, and some of the streams, for a while."""
    chance, kept = random.Random(seed), []
    cupy.cuda.Device(0).use()
    cupy.cuda.set_allocator(commpool.cupy.allocator(pool))
    for number in range(streams):
        stream, value = cupy.cuda.Stream(non_blocking=True), chance.randrange(100)
        with stream:
            array = cupy.full(chance.choice(SIZES), value, dtype="int8")
            if chance.random() < .3:
                kept.append((stream if chance.random() < .3 else None, array + 1))
            if chance.random() < .1 and int((array != value).sum()):
                wrong.append(number)
        if len(kept) > 8:
            kept.pop(chance.randrange(8))
        if seed == 0 and number % STEP == 0:
            reserved.append(pool.stats().reserved_bytes.current // MIB)


def random_use(mode, threads):
    with commpool.Pool("churn", mode=mode) as pool:
        reserved, wrong, begin = [], [], time.perf_counter()
        workers = [threading.Thread(target=churn, args=(pool, seed, STREAMS // threads, reserved, wrong))
                   for seed in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begin
        assert not wrong, f"arrays {wrong} do not hold what their stream wrote"
        return {**finish(pool), "reserved_mib": reserved, "seconds": round(seconds, 1)}


def main():
    results = {}
    for mode in ("fixed", "expandable"):
        results[f"loop, {mode}"] = loop(mode)
        for threads in (1, 4):
            results[f"{STREAMS} streams, {threads} threads, {mode}"] = random_use(mode, threads)
        print(*results.items(), sep="\n", flush=True)
    record("run_libraries streams", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
