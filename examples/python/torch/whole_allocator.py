"""A pool that moves free pages as PyTorch's whole allocator: changing sizes leave no holes."""

import torch

import commpool.torch as commpool

pool = commpool.Pool("whole", mode="expandable")
commpool.install(default=pool)

tensors = []
for step in range(40):
    tensors.append(torch.zeros((2 + step % 7) << 20, dtype=torch.uint8, device="cuda"))
    if step % 3 == 2:
        del tensors[step // 3]
torch.cuda.synchronize()

stats = torch.cuda.memory_stats()
current, peak = stats["allocated_bytes.all.current"], stats["allocated_bytes.all.peak"]
print("tensors have", current >> 20, "MiB, at most", peak >> 20)
print("all of it in the pool:", pool.stats().allocated_bytes.current == current)

del tensors
print("torch's own again:", commpool.uninstall())
