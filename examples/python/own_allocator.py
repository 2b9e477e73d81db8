"""A special allocator of one's own, ncclMemAlloc by ctypes, with a pool's caching and statistics on top."""

import ctypes

import commpool

commpool.initialize("auto")
nccl = ctypes.CDLL("libnccl.so.2")


def nccl_mem_alloc(size, device, stream):
    """Makes a segment; an exception here is the cause of the OutOfMemory that the program sees."""
    pointer = ctypes.c_void_p()
    result = nccl.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    if result != 0:
        raise RuntimeError(f"ncclMemAlloc failed with {result}")
    return pointer.value


def nccl_mem_free(pointer, size, device, stream):
    """Gives a segment back."""
    nccl.ncclMemFree(ctypes.c_void_p(pointer))


backing = commpool.UserBacking(nccl_mem_alloc, nccl_mem_free)  # of an alloc.so: commpool.UserBacking.load("./alloc.so")
with commpool.Pool("special", backing=backing) as pool:
    for _ in range(1000):
        with commpool.use_pool(pool):
            commpool.allocate("1MiB", device=0).free()
    statistics = pool.stats()
print(statistics.allocated_blocks.total, "allocations,", statistics.reserved_segments.total, "call of ncclMemAlloc")
