"""Which allocations a scope catches: of a thread, of large blocks only, of one stream, of what a full pool hands on."""

import threading

import commpool

pool, small = commpool.Pool("pool", reserve="64MiB"), commpool.Pool("small", limit="2MiB")


def served(size, stream=None):
    """The name of the pool that serves an allocation."""
    block = commpool.block_of(commpool.allocate(size, stream, device=0))
    return {pool.handle: "pool", small.handle: "small"}.get(block.pool, "default")


@commpool.use_pool(pool, sizes=("1MiB", None))
def layer():
    """Large blocks of this function, and of all that it calls, go to the pool."""
    return served("4MiB"), served("4KiB")


print("no scope:               ", served("4MiB"))
print("large blocks only:      ", *layer())
with commpool.use_pool(pool):
    with commpool.use_pool(small, exhaustion="next_scope"):
        print("a pool that is too small:", served("4MiB"))
    found = []
    thread = threading.Thread(target=lambda: found.append(served("4MiB")))
    thread.start()
    thread.join()
print("another thread:         ", *found)
with commpool.use_pool(pool, stream=0):  # the default stream; any thread, as autograd's in backward
    thread = threading.Thread(target=lambda: found.append(served("4MiB")))
    thread.start()
    thread.join()
print("one stream, any thread: ", found[1])
