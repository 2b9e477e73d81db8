"""Passes tensors of commpool's pools to a process that has the stock torch alone; run by shared_pools_test.py.

Each case prints what it found. The other process imports this file too, so only `main` imports commpool.
"""

import sys

import torch
import torch.multiprocessing

COUNT = 1000


def other(requests, answers):
    """Does as it is told to with the tensors that came: reads, writes, lets go."""
    tensors = []
    while (request := requests.get()) is not None:
        name, argument = request
        if name == "take":
            tensors = argument
            answers.put([tensor.sum().item() for tensor in tensors])
        elif name == "write":
            tensors[argument].fill_(5)
            torch.cuda.synchronize()
            answers.put(tensors[argument].sum().item())
        elif name == "drop":
            tensors = argument = request = None
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
            answers.put("commpool" in sys.modules)


class Other:
    """The other process."""

    def __init__(self):
        context = torch.multiprocessing.get_context("spawn")
        self.requests, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=other, args=(self.requests, self.answers))
        self.process.start()

    def ask(self, name, argument=None):
        self.requests.put((name, argument))
        return self.answers.get(timeout=100)

    def end(self):
        self.requests.put(None)
        self.process.join()
        return self.process.exitcode


def tensors_in(commpool, pool, count=2, first=1):
    with commpool.use_pool(pool):
        return [torch.full((COUNT,), float(first + number), device="cuda") for number in range(count)]


def passes(commpool, backing):
    """The other reads both tensors of one segment, and writes to one."""
    pool, process = commpool.Pool("shared", backing=backing), Other()
    tensors = tensors_in(commpool, pool)
    print(backing, "in the pool", pool.stats().allocated_blocks.current)
    print("read", process.ask("take", tensors), "wrote", process.ask("write", 1))
    print("here", [tensor.sum().item() for tensor in tensors], "has commpool", process.ask("drop"))
    print("ends", process.end())
    del tensors
    torch.cuda.ipc_collect()
    print("left", pool.stats().allocated_blocks.current)
    pool.close()
    pool.destroy()


def lives(commpool, _):
    """A block that was shared serves again only once its importer lets go; until then its pool stays awake."""
    pool, process = commpool.Pool("shared"), Other()
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
    print("ends", process.end())
    del again
    torch.cuda.ipc_collect()
    pool.close()
    pool.destroy()


def dies(commpool, _):
    """An importer that is killed takes nothing with it."""
    pool, process = commpool.Pool("shared"), Other()
    tensors = tensors_in(commpool, pool)
    process.ask("take", tensors)
    process.process.kill()
    process.process.join()
    print("here", [tensor.sum().item() for tensor in tensors])
    second = Other()
    print("read", second.ask("take", tensors), second.ask("drop"), "ends", second.end())
    del tensors
    torch.cuda.ipc_collect()
    pool.destroy()


def many(commpool, _):
    """A thousand blocks of a segment are one export here and one import there."""
    pool, process = commpool.Pool("shared"), Other()
    pool.reserve("8MiB")
    tensors = tensors_in(commpool, pool, 1000)
    print("read", sum(process.ask("take", tensors)), process.ask("drop"), "ends", process.end())
    exports = {call.name: call.calls for call in commpool.driver_calls()}
    print("exports", exports.get("cuMemExportToShareableHandle"), "segments", pool.stats().reserved_segments.current)
    del tensors
    torch.cuda.ipc_collect()
    pool.destroy()


def refuses(commpool, _):
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

    if sys.argv[1] == "many":
        commpool.initialize("emulated", measure=True)
    commpool.install()
    {"passes": passes, "lives": lives, "dies": dies, "many": many, "refuses": refuses}[sys.argv[1]](
        commpool, sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()
