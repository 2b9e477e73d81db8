"""Weights and a cache that leave the GPU while something else needs it, and come back where everybody knows them."""

import commpool

weights = commpool.Pool("weights", tag="inference")
cache = commpool.Pool("cache", tag="inference")
layer = weights.allocate("64MiB")
blocks = cache.allocate("128MiB")
place = layer.pointer

# Training takes over. What the weights hold is kept in the host's memory, what the cache holds is not needed again.
weights.sleep(keep="host")
commpool.sleep(tag="inference")  # those that are awake still: the cache
for pool in (weights, cache):
    print(pool)
blocks.free()  # at any time: a garbage collector does not ask
try:
    weights.allocate("1MiB")
except commpool.FailedPrecondition as error:
    print(error)

# Inference goes on: memory at the same addresses, so that pointers and CUDA graphs hold.
commpool.wake(tag="inference")
print(f"{commpool.block_of(layer).requested_bytes >> 20} MiB at the same address: {layer.pointer == place}")
print(f"asleep: {sum(pool.stats().asleep_bytes for pool in (weights, cache))}")
