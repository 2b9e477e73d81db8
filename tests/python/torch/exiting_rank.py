"""A rank of group_test that exits with 7 while torch finds that a collective failed: RANK WORLD STORE."""

import ctypes
import os
import sys

os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # torch's own recorder needs Python then, and the process ends with it

import torch
import torch.distributed as dist

from rank_processes import join
from routed import commpool


def main():
    device = join(sys.argv)[2]
    pool = commpool.Pool(symmetric_across=dist.group.WORLD, reserve="2MiB")
    assert pool.abandons_itself
    # It keeps the group for ever, and so the thread that looks for failures.
    torch.nn.parallel.DistributedDataParallel(torch.nn.ParameterList([torch.ones(4, device=device)]))
    dist.all_reduce(torch.ones(4, device=device), async_op=True)
    ctypes.CDLL("libcuda.so.1").commpoolEmulatorInjectFault(b"cuEventQuery", 0, 1 << 30, 999)
    sys.exit(7)


if __name__ == "__main__":
    main()
