"""Fills a cache with all memory of the device, and then makes what NCCL, cuBLAS and graphs take memory for.

usage: starving_ranks.py RANK WORLD STORE ALLOCATOR
"""

import sys

import torch
import torch.distributed as dist

rank, world, store, allocator = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.cuda.set_device(rank)
if allocator.startswith("commpool"):
    import commpool.torch as commpool
    commpool.install(default=commpool.Pool(mode=allocator.split("-")[1], device=rank))

held = []
for size in (1 << 28, 1 << 24, 1 << 21):
    try:
        while True:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
del held
torch.cuda.synchronize()
print("cached", torch.cuda.memory_reserved() >> 20, torch.cuda.memory_allocated() >> 20, flush=True)

dist.init_process_group("nccl", store=dist.FileStore(store, world), rank=rank, world_size=world,
                        device_id=torch.device("cuda", rank))
summed = torch.ones(1 << 16, device="cuda")
dist.all_reduce(summed)
exchanged = torch.empty(1 << 12, device="cuda")
dist.all_to_all_single(exchanged, torch.ones(1 << 12, device="cuda"))
product = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
second = dist.new_group(list(range(world)))
dist.all_reduce(torch.ones(1, device="cuda"), group=second)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = summed + 1
graph.replay()
torch.cuda.synchronize()
print("right", summed[0].item(), exchanged.sum().item(), product[0, 0].item(), captured[0].item(), flush=True)
dist.destroy_process_group()
