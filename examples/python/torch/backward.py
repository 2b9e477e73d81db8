"""Gradients in a pool: what a scope catches of PyTorch, backward's tensors too, and what PyTorch tells of it."""

import torch

import commpool.torch as commpool


def lies_in(tensor):
    """The name of what a tensor lies in."""
    block = commpool.block_of(tensor)
    return "the pool" if block and block.pool == pool.handle else "torch's own memory"


pool = commpool.Pool("gradients")
weights = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
output = weights.clone()
with commpool.use_pool(pool):
    output.backward(torch.ones_like(output))  # on a thread of PyTorch's

print("weights: ", lies_in(weights))
print("gradient:", lies_in(weights.grad))
print("torch counts", torch.cuda.memory_allocated() >> 20, "MiB, of which the pool has",
      pool.stats().allocated_bytes.current >> 20)
weights.grad = None
torch.cuda.empty_cache()
print(pool)
