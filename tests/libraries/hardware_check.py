"""Several libraries on one pool, on a GPU: what the emulator cannot show. A line a fact; what is missing is skipped.

usage: hardware_check.py
"""

import os
import subprocess
import sys
import traceback

import torch

import commpool
import commpool.holders
import commpool.torch

MIB = 1 << 20
facts, here = [], os.path.dirname(os.path.abspath(__file__))


class Skip(Exception):
    """A library is not here."""


def fact(function):
    facts.append(function)
    return function


def imported(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise Skip(f"no {name}: {error}") from error


def must(holds, what):
    if not holds:
        raise AssertionError(what)


def in_cupy(pool, path="auto"):
    cupy = imported("cupy")
    import commpool.cupy

    return cupy, cupy.cuda.using_allocator(commpool.cupy.allocator(pool, path=path))


@fact
def the_example_counts_both_in_one_statistic():
    imported("cupy")
    result = subprocess.run([sys.executable, os.path.join(here, "torch_and_cupy.py")], capture_output=True, text=True,
                            check=False, timeout=180)
    print(result.stdout, end="")
    must(result.returncode == 0, result.stderr)
    must("both bytes: current 1200, peak 1200, total 1200" in result.stdout, result.stdout)
    must("with another tensor count: current 1, peak 2, total 3" in result.stdout, result.stdout)


@fact
def cupy_calls_c_and_its_arrays_compute():
    imported("cupy")
    import commpool.cupy

    must(commpool.cupy.why_not_c() == "", commpool.cupy.why_not_c())
    for path in ("c", "python"):
        pool = commpool.Pool(path)
        cupy, using = in_cupy(pool, path)
        with using:
            total = int((cupy.arange(1000, dtype="int64") * 2).sum())
            must(total == 999000, f"{path}: a sum of {total}")
            must(pool.stats().allocated_blocks.total >= 3, f"{path}: arrays elsewhere")


@fact
def cupy_arrays_are_of_their_stream_and_of_scopes():
    pool = commpool.Pool("scoped")
    cupy, using = in_cupy(None)
    stream = cupy.cuda.Stream(non_blocking=True)
    with using, commpool.use_pool(pool), stream:
        array = cupy.empty(MIB, "uint8")
        block = commpool.block_of(array.data.ptr)
        must(block.pool == pool.handle and block.stream == stream.ptr, f"{block}")
    del array
    commpool.release_stream(stream.ptr)


@fact
def cupy_says_out_of_memory_with_both_words():
    pool = commpool.Pool("small", limit="4MiB")
    for name in ("cupy", "commpool"):
        cupy, using = in_cupy(pool)
        kind = cupy.cuda.memory.OutOfMemoryError if name == "cupy" else commpool.OutOfMemory
        try:
            with using:
                cupy.empty(100 * MIB, "uint8")
        except kind as error:
            must("no memory for 100 MiB in pool small" in str(error), str(error))
        else:
            raise AssertionError("100 MiB from 4")


@fact
def an_array_outlives_its_pool():
    pool = commpool.Pool("short")
    cupy, using = in_cupy(pool)
    with using:
        array = cupy.ones(1000)
    pool.destroy()
    must(float(array.sum()) == 1000, "its contents")
    start = array.data.ptr
    del array
    must(commpool.block_of(start) is None, "it was not freed")


@fact
def a_full_device_asks_cupys_own_pool():
    cupy = imported("cupy")
    cached = cupy.empty(2 << 30, "uint8")
    del cached  # stays in CuPy's pool
    holder = commpool.holders.add_cupy()
    free, _ = torch.cuda.mem_get_info()
    pool = commpool.Pool("hungry")
    block = pool.allocate(free + (1 << 30))
    must(holder.released_bytes >= 2 << 30, repr(holder))
    block.free()
    pool.trim()
    holder.remove()
    print(f"   {holder}")


@fact
def a_full_device_asks_torchs_cache():
    cached = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    del cached
    pool = commpool.Pool("hungry")
    holder = commpool.holders.add_torch()
    free, _ = torch.cuda.mem_get_info()
    pool.allocate(free + (1 << 30)).free()
    print(f"   {holder}" if holder else "   the router did it")
    pool.trim()
    if holder:
        must(holder.released_bytes >= 1 << 30, repr(holder))
        holder.remove()


@fact
def rmms_buffers_lie_in_the_pool():
    sys.path.append(os.environ.get("PYTHONPATH_OF_RMM", ""))
    rmm = imported("rmm")
    import commpool.rmm

    pool = commpool.Pool("rmm")
    resource = commpool.rmm.resource(pool, path="c++")
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(resource))
    buffer = rmm.DeviceBuffer.to_device(bytes(range(256)))
    must(commpool.block_of(int(buffer.ptr)).pool == pool.handle, "elsewhere")
    must(buffer.copy_to_host().tobytes() == bytes(range(256)), "its contents")
    del buffer
    must(pool.stats().allocated_blocks.current == 0, "not freed")
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())


@fact
def numbas_arrays_lie_in_the_pool():
    numba_cuda = imported("numba.cuda").cuda
    import commpool.numba

    pool = commpool.Pool("numba")
    commpool.numba.use(pool)

    @numba_cuda.jit
    def double(array):
        place = numba_cuda.grid(1)
        if place < array.size:
            array[place] *= 2

    array = numba_cuda.to_device(torch.arange(1000).numpy())
    must(pool.stats().allocated_blocks.current == 1, "not in the pool")
    must(int(array.copy_to_host().sum()) == 499500, "a copy")
    try:
        numba_cuda.compile_ptx(double.py_func, (imported("numba").int64[:],))
    except Exception as error:
        raise Skip(f"arrays are in the pool, but Numba compiles no kernel with this NumPy: {error}") from error
    double[8, 128](array)
    must(int(array.copy_to_host().sum()) == 999000, "a kernel")


def main():
    torch.empty(1, device="cuda")
    failed = 0
    for function in facts:
        name = function.__name__.replace("_", " ")
        try:
            function()
            print(f"passed  {name}", flush=True)
        except Skip as reason:
            print(f"skipped {name}: {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(facts)} facts, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
