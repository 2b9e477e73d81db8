"""A rank of group_test that exits with 7 while torch finds that a collective failed: RANK WORLD STORE."""

import atexit
import ctypes
import os
import sys
import time

os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # torch's own recorder needs Python then, and the process ends with it
_SAID = f"{sys.argv[3]}.said"
_CALLED_HOOKS = "before aborting"  # what torch says after it has called its hooks; then it waits for 15 seconds
_SECONDS = 60  # in which it says that
_NOT_READY, _UNKNOWN = 600, 999


@atexit.register
def fail_last():
    """Runs after all else that ends with the interpreter, for it is registered before torch and commpool come.

    torch's thread uses what exit() destroys, with a pool and without: so exit() begins when that thread stands still.
    """
    said = os.open(_SAID, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    standard_error = os.dup(2)
    os.dup2(said, 2)
    ctypes.CDLL("libcuda.so.1").commpoolEmulatorClearFaults()
    _answer_queries(_UNKNOWN)
    end = time.monotonic() + _SECONDS
    while _CALLED_HOOKS not in _text(said) and time.monotonic() < end:
        time.sleep(0.001)
    os.dup2(standard_error, 2)
    os.write(2, _text(said).encode())


def _answer_queries(result):
    ctypes.CDLL("libcuda.so.1").commpoolEmulatorInjectFault(b"cuEventQuery", 0, 1 << 30, result)


def _text(descriptor):
    return os.pread(descriptor, 1 << 20, 0).decode()


import torch
import torch.distributed as dist

from rank_processes import join
from routed import commpool


_pools = []  # They live until the interpreter ends.


class NoticedPool(commpool.Pool):
    def abandon(self, *communicators):
        print("a hook of the pool was called", file=sys.stderr, flush=True)
        super().abandon(*communicators)


def main():
    device = join(sys.argv)[2]
    pool = NoticedPool(symmetric_across=dist.group.WORLD, reserve="2MiB")
    assert pool.abandons_itself
    _pools.append(pool)
    # It keeps the group for ever, and so the thread that looks for failures.
    torch.nn.parallel.DistributedDataParallel(torch.nn.ParameterList([torch.ones(4, device=device)]))
    # Where torch's thread sees that the collective is done it looks at nothing any more, and finds no failure.
    _answer_queries(_NOT_READY)
    dist.all_reduce(torch.ones(4, device=device), async_op=True)
    sys.exit(7)


main()
