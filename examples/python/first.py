"""A pool of one's own: make it, route allocations into it, look at it. Run: `commpool emulate -- python first.py`."""

import commpool


def somebody_elses_code():
    """Allocates from whatever scope is open."""
    return commpool.empty((1024, 1024), "float32", device=0)


with commpool.Pool("activations", limit="64MiB") as pool:
    with commpool.use_pool(pool):  # this thread's allocations go to the pool
        array = somebody_elses_code()
    print(pool)
    try:
        pool.allocate("100MiB")
    except MemoryError as error:
        print(error)
    del array  # its memory is the pool's again, in the order of its stream
    print(pool.trim(), "bytes went back to the driver")
