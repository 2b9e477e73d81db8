"""All-reduces plain and in windows, over communicators whose kernels have more blocks: which number of them pays.

NCCL gives a symmetric kernel the fewest blocks that its model finds enough.
usage: hardware_blocks.py [--record FILE] [--tiny]
"""

import gc
import os
import sys

import torch.distributed as dist

import commpool.torch as commpool
from commpool.torch import _advise, _beside

from hardware_group import end, everywhere, start_ranks, tiny
from hardware_measure import record

MIB = 1 << 20
SIZES = [MIB, 2 * MIB] if tiny() else [size * MIB for size in (1, 2, 4, 8, 16, 27, 32, 64, 150)]
BLOCKS = [0, 16] if tiny() else [0, 8, 12, 16, 24, 32]  # 0: the group's own communicator


def rank(_device):
    pool = commpool.Pool("blocks", symmetric_across=dist.group.WORLD)
    found, own = {}, dist.group.WORLD
    for blocks in BLOCKS:
        group = _beside.with_blocks(own, pool, blocks) if blocks else own
        pool.reserve(max(SIZES))
        ranks = everywhere(_advise.measured_rows(group, group, pool, SIZES))
        rows = _advise.agreed(len(ranks), ranks).rows
        found[str(blocks)] = [list(row) for row in rows]
        gc.collect()
        pool.reclaim()
        if dist.get_rank() == 0:
            for row in rows:
                print(f"at least {blocks or 1:>2} blocks {row.nbytes >> 20:>4} MiB: plain {row.plain_us:8.1f} us, in "
                      f"windows {row.window_us:8.1f} us", flush=True)
    end(pool)
    if dist.get_rank() == 0:
        record("tests/torch/hardware_blocks.py", {"ranks": dist.get_world_size(), "blocks": found})


if __name__ == "__main__":
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
    sys.exit(start_ranks(rank, 100))
