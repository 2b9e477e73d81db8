"""Passes tensors of commpool's pools to a process that has the stock torch alone; run by shared_pools_test.py.

Each case prints what it found. The other process imports this file too, so only `main` imports commpool.
"""

import sys

import torch

from asked_process import Asked

COUNT = 1000


def other(pipe):
    """Does as it is told to with the tensors that came: reads, writes, lets go."""
    tensors = []
    while (request := pipe.recv()) is not None:
        name, argument = request
        if name == "take":
            tensors = argument
            pipe.send([tensor.sum().item() for tensor in tensors])
        elif name == "write":
            tensors[argument].fill_(5)
            torch.cuda.synchronize()
            pipe.send(tensors[argument].sum().item())
        elif name == "drop":
            tensors = argument = request = None
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
            pipe.send("commpool" in sys.modules)


def tensors_in(commpool, pool, count=2, first=1):
    with commpool.use_pool(pool):
        return [torch.full((COUNT,), float(first + number), device="cuda") for number in range(count)]


def passes(commpool, pool, process):
    """The other reads both tensors of one segment, and writes to one."""
    tensors = tensors_in(commpool, pool)
    print("in the pool", pool.stats().allocated_blocks.current)
    print("read", process.ask("take", tensors), "wrote", process.ask("write", 1))
    print("here", [tensor.sum().item() for tensor in tensors], "has commpool", process.ask("drop"))


def lives(commpool, pool, process):
    """A block that was shared serves again only once its importer lets go; until then its pool stays awake."""
    tensors = tensors_in(commpool, pool, 1)
    place = tensors[0].data_ptr()
    process.ask("take", tensors)
    del tensors
    torch.cuda.ipc_collect()
    again = tensors_in(commpool, pool, 1)[0]
    print("taken", again.data_ptr() != place, pool.stats().allocated_blocks.current)
    del again
    try:
        pool.sleep()
        print("slept")
    except RuntimeError as error:
        print(str(error))
    process.ask("drop")
    torch.cuda.ipc_collect()
    print("let go", pool.stats().allocated_blocks.current)
    pool.sleep()
    pool.wake()
    again = tensors_in(commpool, pool, 1, first=7)
    print("serves", again[0].data_ptr() == place, process.ask("take", again), process.ask("drop"))


def dies(commpool, pool, process):
    """An importer that is killed takes nothing with it."""
    tensors, killed = tensors_in(commpool, pool), Asked(other)
    killed.ask("take", tensors)
    killed.process.kill()
    killed.process.join()
    print("here", [tensor.sum().item() for tensor in tensors])
    print("read", process.ask("take", tensors), process.ask("drop"))


def many(commpool, pool, process):
    """A thousand blocks of a segment are one export here and one import there."""
    pool.reserve("8MiB")
    tensors = tensors_in(commpool, pool, 1000)
    print("read", sum(process.ask("take", tensors)), process.ask("drop"))
    exports = {call.name: call.calls for call in commpool.driver_calls()}
    print("exports", exports.get("cuMemExportToShareableHandle"), "segments", pool.stats().reserved_segments.current)


def refuses(commpool, _, _process):
    """What cannot go says why."""
    pool = commpool.Pool("moving", mode="expandable")
    tensor = tensors_in(commpool, pool, 1)[0]
    try:
        tensor.untyped_storage()._share_cuda_()
        print("shared")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    del tensor
    pool.destroy()


def main():
    import commpool.torch as commpool

    case, *backing = sys.argv[1:]
    if case == "many":
        commpool.initialize("emulated", measure=True)
    commpool.install()
    pool, process = commpool.Pool("shared", backing=backing[0] if backing else None), Asked(other)
    globals()[case](commpool, pool, process)
    print("ends", process.end())
    torch.cuda.ipc_collect()
    left = pool.stats().allocated_blocks.current
    print("left", left)
    if not left:
        pool.close()
    pool.destroy()


if __name__ == "__main__":
    main()
