"""The cases of ends_test on each rank: process groups that end before the pools over them."""

import gc
import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import destroy_process_group
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from routed import commpool, run_of_page
from rank_cases import DEVICE, RANK, refusal

_REFERENCE = "commpool/torch/reference.md"


def step(pool, group=None):
    with commpool.use_pool(pool):
        x = torch.ones(1 << 18, device=DEVICE)
    dist.all_reduce(x, group=group)
    return x


def said_of(call):
    return ": ".join(refusal(call) or ["done"])


def pool_over(group, name="gradients", **words):
    return commpool.Pool(name, symmetric_across=group, reserve="8MiB", **words)


def without_close(world):
    pool = pool_over(world)
    step(pool)
    destroy_process_group()
    return said_of(pool.close)


def with_live_tensors(world):
    pool = pool_over(world)
    x = step(pool)
    destroy_process_group()
    said = said_of(pool.close)
    del x
    return said


def closed_before(world):
    with pool_over(world) as pool:
        step(pool)
        pool.close()
        destroy_process_group()
        pool.close()
        return said_of(lambda: pool.reserve("8MiB"))


def dropped(world):
    step(pool_over(world))
    gc.collect()
    destroy_process_group()


def reserved_afterwards(world):
    pool = pool_over(world)
    destroy_process_group()
    return [said_of(lambda: pool.reserve("64MiB")), said_of(pool.close), pool.closed]


def of_several_pools(world):
    pools = [pool_over(world, name) for name in ("one", "two")]
    for pool in pools:
        step(pool)
    destroy_process_group()
    return [said_of(pool.close) for pool in pools]


def of_another_group(world):
    pool, other = pool_over(world), dist.new_group(range(dist.get_world_size()), device_id=DEVICE)
    pool.register_with(other)
    step(pool, other)
    destroy_process_group(other)
    said = [said_of(lambda: pool.reserve("16MiB")), said_of(lambda: pool_over(other))]
    pool.close()
    destroy_process_group()
    return said


def of_a_part(world):
    pool = pool_over(world)
    part = dist.new_group([0], device_id=DEVICE)
    pool.register_with(part)
    if RANK == 0:
        destroy_process_group(part)
    pool.close()
    destroy_process_group()


def of_a_mesh(_world):
    mesh = DeviceMesh("cuda", list(range(dist.get_world_size())))
    pool = pool_over(mesh)
    x = step(pool)
    offset = commpool.window_of(x, mesh).offset
    refused = said_of(lambda: pool_over(DeviceMesh("cuda", [list(range(dist.get_world_size()))])))
    del x
    pool.reclaim()
    pool.close()
    destroy_process_group()
    return [offset, refused]


def as_the_page_says(world):
    """Runs the program of the package's page as it stands, with a model, batches, and a place to meet."""
    store = dist.distributed_c10d._get_default_store()
    if RANK == 0:
        with socket.create_server(("127.0.0.1", 0)) as free:
            store.set("port", str(free.getsockname()[1]))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=store.get("port").decode())
    destroy_process_group()
    return ended(run_of_page("commpool/torch/README.md", "import torch, torch.distributed as dist", device=DEVICE,
                             **of_a_step(64)))


def ended(names):
    """What a program has left: its pool is closed, and was used; there is no group."""
    return [names["pool"].closed, names["pool"].stats().allocated_blocks.total > 0, dist.is_initialized()]


def of_a_step(width):
    """What a step needs that pages leave to the reader."""
    model = torch.nn.Linear(width, width, device=DEVICE)
    x, y = torch.ones(16, width, device=DEVICE), torch.zeros(16, width, device=DEVICE)
    return {"model": model, "batches": [(x, y)] * 3, "x": x, "y": y, "loss": torch.nn.functional.mse_loss,
            "optimizer": torch.optim.SGD(model.parameters())}


def as_the_reference_says(_world):
    """The gradients, of 4 MiB, lie in the pool."""
    return ended(run_of_page(_REFERENCE, 'pool = commpool.Pool("gradients"', commpool=commpool, dist=dist,
                             **of_a_step(1024)))


def as_the_reference_trains(_world):
    names = run_of_page(_REFERENCE, "pool = commpool.Pool(symmetric_across=dist.group.WORLD)  ", commpool=commpool,
                        dist=dist, rank=RANK, fully_sharded=fully_shard(of_a_step(64)["model"]),
                        net=of_a_step(64)["model"])
    for trained in (names["model"], names["net"]):
        trained(torch.ones(16, 64, device=DEVICE)).sum().backward()
    said = names["pool"].stats().allocated_bytes.current > 0
    commpool.fsdp_release(names.pop("model"))
    commpool.ddp_release(names.pop("net"))
    del trained, names["fully_sharded"]
    gc.collect()
    names["pool"].close()
    return said


def as_the_reference_goes_on(world):
    """Rank 1 dies after a step."""
    pool, model, x = commpool.Pool(symmetric_across=world), of_a_step(64)["model"], torch.ones(16, 64, device=DEVICE)
    net = commpool.ddp(model, pool)
    net(x).sum().backward()
    torch.cuda.synchronize()
    if RANK == 1:
        print(json.dumps(["as_the_reference_goes_on", None]), flush=True)
        os._exit(0)
    while pool.lost_rank() is None:
        time.sleep(0.01)  # between looks: the kernel says when the other process has ended
    model.zero_grad()
    names = run_of_page(_REFERENCE, "if pool.lost_rank() is not None:", commpool=commpool, dist=dist, pool=pool,
                        group=world, net=net, model=model, meet=lambda: dist.init_process_group(
                            "nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=DEVICE))
    names["net"](x).sum().backward()
    return model.weight.grad.sum().item()


def after_a_shutdown_of_the_backend(world):
    pool = pool_over(world, deadline_ms=5000)
    dist.ProcessGroup.shutdown.__wrapped__(world)  # torch's own, past the hook
    dist.distributed_c10d._world.pg_map.pop(world)
    return [said_of(call) for call in (pool.close, lambda: pool.reserve("16MiB"), lambda: pool.abandon(world),
                                       pool.close)]


def beside_a_rank_that_does_not_come(world):
    pool = pool_over(world, deadline_ms=1500)
    if RANK == 1:
        return None
    destroy_process_group()
    return said_of(pool.close)


def interrupted_over_the_store(world):
    pool = pool_over(world, agreement="store", deadline_ms=60000)
    if RANK == 1:
        return None
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # Ctrl-C's
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        pool.reserve("64MiB")
    except KeyboardInterrupt:
        return "interrupted"


def main():
    """Each case has a group of its own: ends_ranks.py FOLDER CASE..."""
    folder, cases = sys.argv[1], sys.argv[2:]
    torch.cuda.set_device(DEVICE)
    for case in cases:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("nccl", store=dist.FileStore(os.path.join(folder, case), world), rank=RANK,
                                world_size=world, device_id=DEVICE)
        print(json.dumps([case, globals()[case](dist.group.WORLD)]), flush=True)
        if case in ENDING:
            sys.stdin.readline()  # until the test has heard all ranks
            sys.stderr.flush()
            os._exit(0)
        if dist.is_initialized():
            destroy_process_group()


# Of these one rank alone goes on.
ENDING = ("as_the_reference_goes_on", "beside_a_rank_that_does_not_come", "interrupted_over_the_store",
          "after_a_shutdown_of_the_backend")
main()
