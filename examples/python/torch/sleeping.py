"""A module whose weights sleep while something else needs the GPU; tensors of a sleeping pool may be dropped."""

import gc

import torch

import commpool.torch as commpool

pool = commpool.Pool("weights", tag="weights")
with commpool.use_pool(pool):
    weights = torch.full((1 << 20,), 3.0, device="cuda")
    scratch = torch.zeros(1 << 20, device="cuda")
place = weights.data_ptr()

commpool.sleep(tag="weights", keep="host")
print(f"asleep: {pool.stats().asleep_bytes > 0}, kept on the host: {pool.stats().kept_bytes >> 20} MiB")
del scratch
gc.collect()  # frees a block of a pool that sleeps
torch.cuda.empty_cache()
commpool.wake(tag="weights")
print(f"at the same address: {weights.data_ptr() == place}, sum {weights.sum().item():.0f}")
