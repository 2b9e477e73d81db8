"""One rank: PyTorch's collectives over the emulated NCCL. It exits with 1 on an error or a report."""

import sys

import torch
import torch.distributed as distributed

import on_emulator
import rank_processes


def check(name, found, wanted):
    if found != wanted:
        sys.exit(f"{name}: {found}, not {wanted}")


def collectives(rank, world, device):
    total = sum(range(1, world + 1))
    tensor = torch.full((1024,), float(rank + 1), device=device)
    distributed.all_reduce(tensor)
    check("all_reduce", [tensor[0].item(), tensor[-1].item()], [total, total])
    gathered = torch.empty(world * 4, device=device)
    distributed.all_gather_into_tensor(gathered, torch.full((4,), float(rank), device=device))
    check("all_gather", gathered.tolist(), [float(of // 4) for of in range(world * 4)])
    part = torch.empty(4, device=device)
    distributed.reduce_scatter_tensor(part, torch.full((4 * world,), float(rank + 1), device=device))
    check("reduce_scatter", part.tolist(), [total] * 4)
    work = distributed.broadcast(tensor.fill_(rank + 5), 1, async_op=True)
    work.wait()
    check("broadcast", tensor[7].item(), 6)
    if rank == 0:
        distributed.send(tensor, 1)
    elif rank == 1:
        distributed.recv(tensor.zero_(), 0)
        check("recv", tensor[1023].item(), 6)
    distributed.barrier()


def captured(rank, world, device):
    tensor = torch.zeros(8, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        distributed.all_reduce(tensor)
    for _ in range(2):
        tensor.fill_(rank + 1)
        graph.replay()
    check("captured all_reduce", tensor.tolist(), [sum(range(1, world + 1))] * 8)


def subgroup(rank, world, device):
    group = distributed.new_group(list(range(world)), device_id=device)
    tensor = torch.full((4,), 2, dtype=torch.int64, device=device)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX, group=group)
    check("all_reduce of a second group", tensor.tolist(), [2] * 4)
    check("communicator", group._get_backend(device)._comm_ptr() != 0, True)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(64))

    def forward(self, batch):
        return (batch * self.scale).sum()


def data_parallel(rank, world, device):
    model = torch.nn.parallel.DistributedDataParallel(Scaled().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 64), float(rank), device=device)).backward()
        optimizer.step()
    mean = 2 * sum(range(world)) / world
    check("averaged gradient", model.module.scale.grad[63].item(), mean)
    check("weight", model.module.scale[0].item(), 1 - 3 * 0.5 * mean)


def registered_pool(rank, world, device):
    backend = distributed.group.WORLD._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.full((1 << 18,), float(rank), device=device)
    backend.register_mem_pool(pool, symm=True)
    distributed.all_reduce(tensor)
    check("all_reduce in windows", tensor[9].item(), float(sum(range(world))))
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)


def main():
    rank, world, device = rank_processes.join(sys.argv)
    for case in (collectives, captured, subgroup, data_parallel, registered_pool):
        case(rank, world, device)
    torch.cuda.synchronize()
    distributed.destroy_process_group()
    check("reports", on_emulator.reports(), [])
    print("all is well")


main()
