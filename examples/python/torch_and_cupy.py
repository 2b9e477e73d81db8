"""A PyTorch tensor and a CuPy array in one pool, and one statistic that counts both."""

import cupy
import torch

import commpool.cupy
import commpool.torch

pool = commpool.torch.Pool("shared", limit="1GiB")
commpool.torch.install(default=pool)  # all of PyTorch's tensors
cupy.cuda.set_allocator(commpool.cupy.allocator(pool))  # all of CuPy's arrays


def show(when):
    statistics = pool.stats()
    for name, counter in (("bytes", statistics.requested_bytes), ("count", statistics.allocated_blocks)):
        print(f"{when} {name}: current {counter.current}, peak {counter.peak}, total {counter.total}")


array = cupy.zeros(100)  # float64: 800 bytes
tensor = torch.zeros(100, device="cuda")  # float32: 400 bytes
show("both")
del array
show("without the array")
tensor = torch.zeros(200, device="cuda")  # the new one is there before the old one goes
show("with another tensor")
