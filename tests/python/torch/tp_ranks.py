"""What each rank of tp_test does, case by case; rank 0 prints what all said, a line of JSON a case."""

import ctypes
import gc

import torch
import torch.distributed as dist

from routed import MIB, commpool, pool_of

from commpool.torch import dropins

from rank_cases import DEVICE, end, leave, run_cases

WIDTH = 2048


class Layer(torch.nn.Module):
    """The row-parallel part of a layer: its output is summed over the ranks."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH,), 0.5, device=DEVICE), requires_grad=False)

    def forward(self, x, windows, seen):
        with windows:
            out = x * self.weight
        seen.append(out)
        dist.all_reduce(out)
        return x + out


def decode(layers, x, windows):
    """A token; where each output lay."""
    seen = []
    for layer in layers:
        x = layer(x, windows, seen)
    return x, seen


def ordered(group):
    return commpool.Pool("tp", symmetric_across=group, reserve="4MiB", frees="ordered")


def eagerly(group):
    pool = ordered(group)
    windows, layers = commpool.tp(pool, sizes=(4 * WIDTH, MIB)), [Layer() for _ in range(3)]
    for _ in range(2000):  # far more than the pool holds, were a freed output not served again
        x, seen = decode(layers, torch.ones(WIDTH, device=DEVICE), windows)
        inside = [pool_of(out) == pool.handle for out in seen]
        offset = pool.window_of(seen[-1], group).offset
        x_in_pool = pool_of(x) == pool.handle
        seen.clear()
        if len(layers) * 2000 * 4 * WIDTH < 4 * MIB:
            raise AssertionError("the loop proves nothing")
        if pool.stats().allocated_blocks.total >= 700:  # 5.5 MiB of outputs from 4 MiB
            break
    with windows:
        small = torch.ones(WIDTH // 2, device=DEVICE)
    said = [inside, x_in_pool, x[0].item(), offset, pool_of(small)]
    del x, seen, small
    return [*said, end(pool)]


def in_a_graph(group):
    pool = commpool.Pool("tp", symmetric_across=group, reserve="4MiB")
    windows, layers = commpool.tp(pool, sizes=(4 * WIDTH, MIB)), [Layer() for _ in range(3)]
    start, graph = torch.ones(WIDTH, device=DEVICE), torch.cuda.CUDAGraph()
    decode(layers, start, windows)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        x, seen = decode(layers, start, windows)
    inside = [pool_of(out) == pool.handle for out in seen]
    said = [inside]
    for value in (1.0, 2.0):
        start.fill_(value)
        graph.replay()
        said.append(x[0].item())
    del x, seen, graph
    return [*said, end(pool)]


def nested_and_refused(group):
    pool, plain = ordered(group), commpool.Pool("plain")
    windows = commpool.tp(pool, sizes=4096)
    with windows, windows:
        inner = torch.ones(WIDTH, device=DEVICE)
    said = [pool_of(inner) == pool.handle, pool_of(torch.ones(WIDTH, device=DEVICE))]
    for wrong in (lambda: commpool.tp(plain), lambda: dropins.serve(group, plain),
                  lambda: dropins.nccl_symm_mem_context(PyNccl(group)).__enter__()):
        try:
            wrong()
        except commpool.CommpoolError as error:
            said.append(str(error))
    del inner
    return [*said, end(pool)]


class PyNccl:
    """What vLLM and SGLang hand over: a communicator of their own binding."""

    def __init__(self, group):
        self.comm = ctypes.c_void_p(group._get_backend(DEVICE)._comm_ptr())
        self.world_size, self.device = group.size(), DEVICE


class Coordinator:
    """SGLang's."""

    def __init__(self, group):
        self.pynccl_comm, self.world_size = PyNccl(group), group.size()


def as_vllm_does(group):
    pool, communicator = ordered(group), PyNccl(group)
    dropins.serve(communicator, pool)
    with dropins.nccl_symm_mem_context(communicator):
        out = torch.ones(WIDTH, device=DEVICE)
    with dropins.nccl_symm_mem_context(communicator, disabled=True):
        other = torch.ones(WIDTH, device=DEVICE)
    dist.all_reduce(out)
    said = [pool.window_of(out, group).offset, pool_of(other), out[0].item()]
    dropins.stop_serving(communicator)
    del out
    return [*said, end(pool)]


def as_sglang_does(group):
    pool, coordinator = ordered(group), Coordinator(group)
    dropins.serve(coordinator, pool)
    with dropins.use_symmetric_memory(coordinator):
        out = torch.ones(WIDTH, device=DEVICE)
    with dropins.use_symmetric_memory(coordinator, disabled=True):
        other = torch.ones(WIDTH, device=DEVICE)
    dist.all_reduce(out)
    said = [pool.window_of(out, group).offset, pool_of(other), out[0].item()]
    dropins.stop_serving(coordinator)
    del out
    return [*said, end(pool)]


def as_megatron_does(group):
    said = []
    for symmetric in (True, False):
        pool = dropins.create_nccl_mem_pool(symmetric=symmetric, reserve="4MiB")
        with dropins.nccl_mem(pool, group=group):
            buffer = torch.ones(WIDTH, device=DEVICE)
        with dropins.nccl_mem(pool, enabled=False):
            other = torch.ones(WIDTH, device=DEVICE)
        dist.all_reduce(buffer)
        said.append([pool_of(buffer) == pool.handle, pool_of(other), buffer[0].item(),
                     pool.stats().registered_segments])
        del buffer
        gc.collect()
        torch.cuda.synchronize()
        if symmetric:
            pool.reclaim()
        pool.close()
        pool.destroy()
    return said


CASES = [eagerly, in_a_graph, nested_and_refused, as_vllm_does, as_sglang_does, as_megatron_does]


if __name__ == "__main__":
    run_cases(CASES)
    leave()
