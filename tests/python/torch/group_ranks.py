"""The cases of group_test on each rank. Rank 0 prints the results of all ranks as a line of JSON for each case."""

import ctypes
import os
import sys
import unittest.mock

import torch
import torch.distributed as dist

from routed import MIB, commpool, filled_in, pool_of, tensor, train_once

from commpool.torch import _ddp, _group

import commpool as plain

from on_emulator import reports
from rank_cases import DEVICE, RANK, end, refusal, run_cases


def leaf(numel):
    return torch.zeros(numel, device=DEVICE, requires_grad=True)


def windows(group):
    return [windows_over(group, agreement) for agreement in ("tcp", "store")]


def windows_over(group, agreement):
    pool = commpool.Pool(symmetric_across=group, reserve="64MiB", agreement=agreement)
    x = leaf(MIB)
    with commpool.use_pool(pool):
        first = torch.ones(1000, device=DEVICE)
        train_once(x)
    found = [pool.window_of(of_pool, group) for of_pool in (first, x.grad)]
    dist.all_reduce(first)
    said = [[window.offset for window in found], all(window.handle for window in found), first[0].item(), pool.device,
            pool_of(x.grad) == pool.handle]
    del first, x
    end(pool)
    return said


def exhausted(group):
    pool = commpool.Pool("small", symmetric_across=group, reserve="2MiB")
    x = leaf(2 * MIB)
    with commpool.use_pool(pool):
        said = [refusal(lambda: train_once(x), torch.OutOfMemoryError)[1]]
    x.grad = None
    pool.reserve("64MiB")
    with commpool.use_pool(pool):
        train_once(x)
    said.append(pool_of(x.grad) == pool.handle)
    del x
    end(pool)
    return said


def different(group):
    pool = commpool.Pool(symmetric_across=group, reserve="16MiB")
    with commpool.use_pool(pool):
        same = tensor(MIB, RANK)
        if RANK == 0:
            ragged = torch.empty(MIB, dtype=torch.uint8, device=DEVICE)  # line A
        else:
            ragged = torch.empty(2 * MIB, dtype=torch.uint8, device=DEVICE)  # line B
    said = [refusal(pool.verify, commpool.Disagreement)[1], refusal(pool.close, commpool.FailedPrecondition)[1]]
    del same, ragged
    pool.close()
    pool.destroy()
    return said


def steps(group):
    """The next step gets what a step has freed, after all ranks have called reclaim()."""
    pool, x = commpool.Pool(symmetric_across=group, reserve="40MiB"), leaf(2 * MIB)

    def step():
        with commpool.use_pool(pool):
            train_once(x)
        x.grad = None

    for _ in range(3):
        step()
        pool.reclaim()
    said = ["reclaim" in refusal(lambda: [step(), step()], torch.OutOfMemoryError)[1]]
    x.grad = None
    del x
    end(pool)
    return said


def between_devices(group):
    """A kernel on another device of this process writes to a symmetric pool's tensor."""
    other = torch.device("cuda", 1 - RANK)
    theirs = torch.arange(6.0).reshape(2, 3).to(other)
    torch.empty(3, 2, device=DEVICE).copy_(theirs.t())  # torch makes them peers if they are not
    pool = commpool.Pool(symmetric_across=group, reserve="2MiB")
    with commpool.use_pool(pool):
        ours = torch.empty(3, 2, device=DEVICE)
    ours.copy_(theirs.t())
    said = [pool_of(ours) == pool.handle, ours.tolist()]
    del ours
    end(pool)
    return said


def proposed(group):
    """The program of a proposal to PyTorch: it gets NCCL's memory by ctypes, registers it, and all-reduces in it."""
    live = []

    def nccl_mem_alloc(size):
        nccl = ctypes.CDLL("libnccl.so.2")
        assert nccl.ncclMemAlloc is not None
        ptr = ctypes.c_void_p()
        err = nccl.ncclMemAlloc(ctypes.byref(ptr), ctypes.c_size_t(size))
        if err != 0:
            raise RuntimeError(f"Failed to allocate memory with ncclMemAlloc with error code: {err}")
        live.append(ptr.value)
        return ptr

    def nccl_mem_free(ptr):
        nccl = ctypes.CDLL("libnccl.so.2")
        assert nccl.ncclMemFree is not None
        err = nccl.ncclMemFree(ctypes.c_void_p(ptr))
        if err != 0:
            raise RuntimeError(f"Failed to free memory with ncclMemFree with error code: {err}")
        live.remove(ptr)

    # These lines replace torch.cuda.MemPool(nccl_mem_alloc, nccl_mem_free); below, torch.cuda.mempool,
    # backend.register_user_buffers(pool), and a kernel that makes random numbers.
    pool = commpool.Pool(backing=commpool.UserBacking(nccl_mem_alloc, nccl_mem_free), device=DEVICE)
    with commpool.use_pool(pool, device=DEVICE):
        special_tensor = torch.full((2**20,), RANK + 1.0, device="cuda")
    pool.register_with(dist.group.WORLD)
    dist.all_reduce(special_tensor)
    said = [pool_of(special_tensor) == pool.handle, len(live), pool.stats().registered_segments,
            live[0] <= special_tensor.data_ptr(), special_tensor[-1].item()]
    del special_tensor
    torch.cuda.synchronize()
    pool.deregister(group)
    pool.close()
    pool.destroy()
    return [*said, live]


def sizes(group):
    # A pool of commpool's own package: torch does not hear that it has reserved memory, and keeps the memory only
    # because the pool is symmetric.
    pool = plain.Pool(symmetric_across=group, device=RANK, reserve="16MiB")
    with commpool.use_pool(pool, sizes=("1MiB", None)):
        ragged = tensor(1000 * (1 + RANK), RANK)
        same = tensor(MIB, RANK)
    pool.verify()
    torch.cuda.empty_cache()  # never trims a symmetric pool, because the ranks would have to agree
    said = [pool_of(ragged), pool_of(same) == pool.handle, pool.stats().reserved_bytes.current]
    del same
    end(pool)
    return said


def several(group):
    other = dist.new_group(device_id=DEVICE)
    dist.all_reduce(torch.ones(1, device=DEVICE), group=other)
    alone = dist.new_group([0])
    if RANK == 0:
        dist.all_reduce(torch.ones(1, device=DEVICE), group=alone)
    pool = commpool.Pool(symmetric_across=group, reserve="2MiB")
    pool.register_with(other)
    pool.register_with(alone)
    made = filled_in(pool, 1.0, 100, torch.float32)
    dist.all_reduce(made, group=other)
    said = [pool.window_of(made, other).offset, made[0].item()]
    del made
    pool.reclaim()
    pool.deregister(alone)
    pool.deregister(other)
    end(pool)
    return said


def outlived(group):
    """A tensor is alive when its group ends, and when its pool ends."""
    other = dist.new_group(device_id=DEVICE)
    dist.all_reduce(torch.ones(1, device=DEVICE), group=other)
    pool = commpool.Pool("outlived", symmetric_across=other, reserve="2MiB")
    kept = filled_in(pool, 3.0, 1000, torch.float32)
    said = [refusal(pool.close)[1]]
    torch.cuda.synchronize()
    pool.abandon(other)
    dist.destroy_process_group(other)
    said.append(kept[0].item())
    pool.destroy()
    said.append(kept.add(1)[0].item())
    return said


def without_communicator(group):
    """The first case: torch makes the communicator at the first collective. In older versions the question raises."""
    said, raises = [], unittest.mock.Mock(spec=["_comm_ptr"])
    raises._comm_ptr.side_effect = RuntimeError("no communicator\nand where that was found")
    for backend in (group._get_backend(DEVICE), raises):
        with unittest.mock.patch.object(_group, "backend_of", return_value=backend):
            said.append(refusal(lambda: commpool.Pool(symmetric_across=group), commpool.FailedPrecondition)[1])
    dist.all_reduce(torch.ones(1, device=DEVICE))
    pool = commpool.Pool(symmetric_across=group, reserve="2MiB")
    said.append(pool.mode)
    end(pool)
    return said


def sleeps(group):
    """Pools sleep by a tag and keep their blocks' contents. Once a rank has no memory to wake with; all ranks hear of
    it."""
    pool = commpool.Pool("sleeping", tag="windows", symmetric_across=group, reserve="64MiB")
    kept = filled_in(pool, 3.0, 1000, torch.float32)
    before = pool.window_of(kept, group)
    commpool.sleep(tag="windows", keep="host", graphs="discarded")
    said = [refusal(lambda: pool.window_of(kept, group)), pool.stats().asleep_bytes == 64 * MIB]
    if RANK == 1:
        hog = commpool.Pool("hog")
        hog.reserve(torch.cuda.mem_get_info(DEVICE)[0] - 8 * MIB)
    said.append(refusal(lambda: commpool.wake(tag="windows")))
    said.append(pool.stats().asleep_bytes == 64 * MIB)
    if RANK == 1:
        hog.destroy()
    commpool.wake(tag="windows")
    after = pool.window_of(kept, group)
    dist.all_reduce(kept)
    said += [before.offset == after.offset, after.handle != 0, kept[0].item()]
    del kept
    end(pool)
    return said


def sleeps_under_a_graph(group):
    """A captured collective may have registered memory that is different after waking: the emulator reports it."""
    pool, graph = commpool.Pool("captured", symmetric_across=group, reserve="4MiB"), torch.cuda.CUDAGraph()
    dist.all_reduce(torch.ones(1, device=DEVICE))
    with commpool.use_pool(pool), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = torch.ones(1000, device=DEVICE, dtype=torch.int32)  # no symmetric kernel exists for it, so a ring runs
        dist.all_reduce(out)
    graph.replay()
    torch.cuda.synchronize()
    said = [reports(), refusal(pool.sleep)]
    pool.sleep(graphs="no_collectives")  # the promise is false
    pool.wake()
    graph.replay()
    torch.cuda.synchronize()
    said += [reports(), out[0].item()]
    del out, graph
    end(pool)
    return said


def aborted(group):
    """The last case, because the group is gone after it. torch calls hooks when a timeout aborts; here they run at
    once."""
    backend, hooks = group._get_backend(DEVICE), []
    with unittest.mock.patch.object(_group, "backend_of", return_value=unittest.mock.Mock(
            supports_abort_hooks=True, register_abort_hook=lambda _number, hook: hooks.append(hook),
            comm_ptr=_group.communicator_of(group, RANK))):
        pool = commpool.Pool(symmetric_across=group, reserve="2MiB")
    with_hook = pool.abandons_itself
    hooks[0]()
    backend.abort()
    pool.close()  # local, because every communicator is abandoned
    said = [with_hook, pool.stats().reserved_bytes.current, pool.stats().held_bytes]
    pool.destroy()
    return said


def unawaited(group):
    """Torch's process group has the tensor of a collective that nobody waited for. The pool says where to look."""
    pool = commpool.Pool("gradients", symmetric_across=group, reserve="2MiB")
    with commpool.use_pool(pool):
        dist.all_reduce(torch.ones(1000, device=DEVICE), async_op=True)
    torch.cuda.synchronize()
    pool.reclaim()
    said = [refusal(pool.close, commpool.FailedPrecondition)[1]]
    _ddp.let_go(group, DEVICE)  # the later collective
    return [*said, end(pool)]


if "remapped" in sys.argv:
    run_cases([sleeps_under_a_graph])
elif "late" in sys.argv:
    run_cases([without_communicator, different], device_id=None)
else:
    run_cases([windows, exhausted, steps, between_devices, proposed, different, sizes, several, sleeps, outlived,
               unawaited, aborted])
sys.stdout.flush()
os._exit(0)  # the group may be aborted, so the ranks cannot destroy it together
