"""All-reduces of tensors in windows: torchrun --nproc-per-node 2 symmetric.py"""

import os

import torch
import torch.distributed as dist

import commpool.torch as commpool

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
group = dist.group.WORLD

pool = commpool.Pool("gradients", symmetric_across=group, reserve="64MiB")  # every rank, at the same place
with commpool.use_pool(pool, sizes=("1MiB", None)):  # small tensors may differ by rank: they stay out
    gradients = torch.ones(4 << 20, device=device)
dist.all_reduce(gradients)

window = pool.window_of(gradients, group)
print(f"rank {group.rank()}: offset {window.offset} of its window, sum {gradients[0].item():g}", flush=True)
del gradients
pool.reclaim()  # all ranks have freed it
pool.close()
pool.destroy()
dist.destroy_process_group()
