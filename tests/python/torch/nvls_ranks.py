"""Each rank says whether NCCL can use NVLink multicast (NVLS) for tensors that `commpool.torch.tp` makes.

Rank 0 prints the answers of all ranks as a line of JSON for each case: eager, and in a captured graph. NCCL's own log
shows which windows were bound (the emulator's line), and the kernel of each all-reduce.
"""

import functools
import re

from nccl_log import LOG, all_reduces_of, log

import torch
import torch.distributed as dist

from routed import MIB, commpool

from rank_cases import DEVICE, end, leave, run_cases

COUNT = 4096
_BOUND = re.compile(r"window 0x([0-9a-f]+) size (\d+) is bound for NVLS multicast")


def bound(tensor):
    """Whether the emulator's NCCL has bound the window with this tensor."""
    windows = [(int(begin, 16), int(size)) for begin, size in _BOUND.findall(log())]
    return any(begin <= tensor.data_ptr() < begin + size for begin, size in windows)


def kernels_of(work):
    return [[symmetric, kernel] for _, symmetric, kernel in all_reduces_of(work)]


def eligible(pool, tensor, group):
    try:
        found = pool.nvls_eligible(tensor.data_ptr(), 4 * COUNT, group)
    except commpool.NotFound as error:
        return [False, str(error)]
    return [found.eligible, found.reason]


def told(pool, tensor, group, kernels):
    return {"kernels": kernels, "bound": bound(tensor), "eligible": eligible(pool, tensor, group),
            "value": tensor[0].item()}


def made(windows):
    """Makes one tensor in a window, as the output of a row-parallel layer, and one in torch's memory."""
    with windows:
        inside = torch.ones(COUNT, device=DEVICE)
    return {"inside": inside, "outside": torch.ones(COUNT, device=DEVICE)}


@functools.lru_cache(maxsize=None)
def windows_over(group):
    """The one pool of all cases, and the windows from it."""
    dist.all_reduce(torch.ones(COUNT, device=DEVICE))
    pool = commpool.Pool("tp", symmetric_across=group, reserve="6MiB")
    return pool, commpool.tp(pool, sizes=(4 * COUNT, MIB))


def eagerly(group):
    pool, windows = windows_over(group)
    return {name: told(pool, tensor, group, kernels_of(lambda of=tensor: dist.all_reduce(of)))
            for name, tensor in made(windows).items()}


def in_a_graph(group):
    (pool, windows), said = windows_over(group), {}
    for name in ("inside", "outside"):
        graph, holder = torch.cuda.CUDAGraph(), {}

        def captured():
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                holder.update(made(windows))
                dist.all_reduce(holder[name])
            graph.replay()

        kernels = kernels_of(captured)
        said[name] = told(pool, holder[name], group, kernels)
        holder.clear()
        del graph
    return said


run_cases([eagerly, in_a_graph])
end(windows_over(dist.group.WORLD)[0])
leave()
LOG.unlink(missing_ok=True)
