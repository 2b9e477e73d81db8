"""The cases of tp_test on each rank. Rank 0 prints the results of all ranks as a line of JSON for each case."""

import ctypes
import os
import warnings

import torch
import torch.distributed as dist

from routed import MIB, commpool, pool_of

from commpool.torch import dropins

from rank_cases import DEVICE, RANK, end, leave, refusal, run_cases

WIDTH = 2048


class Layer(torch.nn.Module):
    """The row-parallel part of a layer. Its output is summed over the ranks."""

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
    """Decodes one token; returns the place of each output."""
    seen = []
    for layer in layers:
        x = layer(x, windows, seen)
    return x, seen


def ordered(group):
    return commpool.Pool("tp", symmetric_across=group, reserve="4MiB", frees="ordered")


def eagerly(group):
    pool = ordered(group)
    windows, layers = commpool.tp(pool, sizes=(4 * WIDTH, MIB)), [Layer() for _ in range(3)]
    while pool.stats().allocated_blocks.total < 700:  # 5.5 MiB of outputs from 4 MiB: what is freed serves again
        x, seen = decode(layers, torch.ones(WIDTH, device=DEVICE), windows)
        inside = [pool_of(out) == pool.handle for out in seen]
        offset = pool.window_of(seen[-1], group).offset
        seen.clear()
    with windows:
        small = torch.ones(WIDTH // 2, device=DEVICE)
    said = [inside, pool_of(x), x[0].item(), offset, pool_of(small)]
    del x, seen, small
    return [*said, end(pool)]


def in_a_graph(group):
    pool = commpool.Pool("tp", symmetric_across=group, reserve="4MiB")
    windows, layers = commpool.tp(pool, sizes=(4 * WIDTH, MIB)), [Layer() for _ in range(3)]
    start, graph = torch.ones(WIDTH, device=DEVICE), torch.cuda.CUDAGraph()
    decode(layers, start, windows)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        x, seen = decode(layers, start, windows)
    said = [[pool_of(out) == pool.handle for out in seen]]
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
    said += [refusal(wrong)[1] for wrong in (lambda: commpool.tp(plain), lambda: dropins.serve(group, plain),
                                             lambda: dropins.nccl_symm_mem_context(PyNccl(group)).__enter__())]
    del inner
    return [*said, end(pool)]


class PyNccl:
    """A communicator of their own binding, as vLLM and SGLang pass it."""

    def __init__(self, group):
        self.comm = ctypes.c_void_p(group._get_backend(DEVICE)._comm_ptr())
        self.world_size, self.device = group.size(), DEVICE


class Coordinator:
    """Like SGLang's."""

    def __init__(self, group):
        self.pynccl_comm, self.world_size, self.device_group = PyNccl(group), group.size(), group


def served_with_other_sizes(group):
    """For a group, and for a coordinator that has one."""
    pool, said = ordered(group), []
    for communicator in (group, Coordinator(group)):
        said.append(refusal(lambda: dropins.serve(communicator, pool, sizes=(4096 << RANK, MIB)),
                            commpool.Disagreement)[1])
        dropins.serve(communicator, pool, sizes=(4096, MIB))
        dropins.stop_serving(communicator)
    return [*said, end(pool)]


def served_in(context, communicator, group):
    """One tensor in a framework's own context, and one where it is off."""
    pool = ordered(group)
    dropins.serve(communicator, pool)
    with context(communicator):
        out = torch.ones(WIDTH, device=DEVICE)
    with context(communicator, disabled=True):
        other = torch.ones(WIDTH, device=DEVICE)
    dist.all_reduce(out)
    said = [pool.window_of(out, group).offset, pool_of(other), out[0].item()]
    dropins.stop_serving(communicator)
    del out
    return [*said, end(pool)]


def as_vllm_does(group):
    return served_in(dropins.nccl_symm_mem_context, PyNccl(group), group)


def as_sglang_does(group):
    return served_in(dropins.use_symmetric_memory, Coordinator(group), group)


def as_megatron_does(group):
    dropins.init()
    said = []
    for symmetric in (True, False):
        pool = dropins.create_nccl_mem_pool(symmetric=symmetric, reserve="4MiB")
        with dropins.nccl_mem(pool, group=group, symmetric=symmetric):
            buffer = torch.ones(WIDTH, device=DEVICE)
        with dropins.nccl_mem(pool, enabled=False):
            other = torch.ones(WIDTH, device=DEVICE)
        dist.all_reduce(buffer)
        said.append([pool_of(buffer) == pool.handle, pool_of(other), buffer[0].item(),
                     pool.stats().registered_segments])
        del buffer
        end(pool)
    return [*said, os.environ.get("NCCL_NVLS_ENABLE")]


def by_several_groups(group):
    """Of one pool: over all ranks, and over each rank alone."""
    mine = [dist.new_group([rank]) for rank in range(dist.get_world_size())][RANK]
    dist.all_reduce(torch.ones(1, device=DEVICE), group=mine)
    pool = dropins.create_nccl_mem_pool(symmetric=True, reserve="4MiB")
    said = []
    for _ in range(2):  # the second context finds the registrations of the first
        with dropins.MultiGroupMemPoolAllocator(pool, [group, mine], symmetric=True):
            buffer = torch.ones(WIDTH, device=DEVICE)
        dist.all_reduce(buffer)
        dist.all_reduce(buffer, group=mine)
        said.append([pool.window_of(buffer, of).handle != 0 for of in (group, mine)] + [buffer[0].item()])
        del buffer
    dropins.deregister_mem_pool(pool, mine)
    end(pool)
    return said


def by_hand(group):
    pool = dropins.create_nccl_mem_pool()
    with dropins.MemPoolAllocatorWithoutRegistration(pool):
        buffer = torch.ones(WIDTH, device=DEVICE)
    said = [pool_of(buffer) == pool.handle, pool.stats().registered_segments]
    dropins.register_mem_pool(pool, group, symmetric=False)
    said.append([pool.stats().registered_segments, commpool.fallbacks()])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dropins.register_mem_pool(pool, group)
    said.append([str(warning.message) for warning in warned] + [commpool.fallbacks()])
    dropins.deregister_mem_pool(pool, group)
    said.append(pool.stats().registered_segments)
    del buffer
    end(pool)
    return said


run_cases([eagerly, in_a_graph, nested_and_refused, served_with_other_sizes, as_vllm_does, as_sglang_does,
           as_megatron_does, by_several_groups, by_hand])
leave()
