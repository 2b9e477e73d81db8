"""Tensors of a pool in another process that has commpool, by tickets; run by tickets_test.py.

Each case prints what it found.
"""

import sys

import torch
import torch.multiprocessing

import commpool.torch as commpool

COUNT = 1000
UPDATES = 20
SECONDS = 60


def engine(pipe):
    """Reads the tensor of each ticket that comes, in place, as often as it is asked."""
    shared, tensors = None, {}
    while (request := pipe.recv()) is not None:
        name, ticket = request
        if name == "take":
            shared = shared or commpool.Pool.import_(ticket)
            block = shared.block(ticket)
            tensors[ticket] = block, block.tensor((COUNT,), torch.float32)
            pipe.send(tensors[ticket][1].device.index)
        elif name == "read":
            block, tensor = tensors[ticket]
            with block.read():
                total = tensor.sum()
            pipe.send(total.item())
        elif name == "drop":
            del block, tensor, tensors[ticket]
            pipe.send(len(tensors))
        elif name == "try":
            try:
                answer = str(tensors[ticket][0].tensor((2 * COUNT,), torch.float32))
            except ValueError as error:
                answer = str(error)
            pipe.send(answer)
    shared.close()


class Engine:
    """The other process."""

    def __init__(self):
        context = torch.multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=engine, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, name, ticket):
        self.pipe.send((name, ticket))
        if not self.pipe.poll(SECONDS):
            raise RuntimeError(f"no answer to {name} within {SECONDS} s")
        return self.pipe.recv()

    def end(self):
        self.pipe.send(None)
        self.process.join()
        return self.process.exitcode


def filled(pool, value):
    with commpool.use_pool(pool):
        tensor = torch.full((COUNT,), float(value), device=f"cuda:{pool.device}")
    torch.cuda.synchronize(pool.device)
    return tensor


def in_place(device):
    """What one process writes the other reads in place, on the pool's device."""
    pool = commpool.Pool("weights", device=int(device))
    tensors = [filled(pool, value) for value in (1, 2)]
    tickets, other = [pool.share(tensor) for tensor in tensors], Engine()
    print("there", [other.ask("take", ticket) for ticket in tickets] == [pool.device] * len(tickets))
    print("read", [other.ask("read", ticket) for ticket in tickets])
    print("refused", other.ask("try", tickets[0]))
    print("ends", other.end())
    pool.destroy()


def updated(_):
    """Each update on a stream of torch's own shows as a whole."""
    pool, stream = commpool.Pool("weights"), torch.cuda.Stream()
    tensor = filled(pool, 0)
    ticket, other = pool.share(tensor), Engine()
    other.ask("take", ticket)
    sums = []
    for value in range(UPDATES):
        with torch.cuda.stream(stream), pool.update(tensor):
            tensor.fill_(value)
        sums.append(other.ask("read", ticket))
    print("sums", sums == [float(COUNT * value) for value in range(UPDATES)])
    print("ends", other.end())
    pool.destroy()


def freed(_):
    """A dropped tensor's memory serves again once the other has dropped its own."""
    pool, other = commpool.Pool("weights"), Engine()
    tensor = filled(pool, 3)
    place, ticket = tensor.data_ptr(), pool.share(tensor)
    other.ask("take", ticket)
    del tensor
    again = filled(pool, 4)
    print("held", again.data_ptr() != place, other.ask("read", ticket))
    print("dropped", other.ask("drop", ticket))
    while any(block.state == "pending" for block in pool.snapshot().blocks):
        pass
    more = [filled(pool, 5) for _ in range(2)]
    print("serves", place in [tensor.data_ptr() for tensor in more], "ends", other.end())
    del again, more
    pool.destroy()


def main():
    torch.cuda.init()
    {"in_place": in_place, "updated": updated, "freed": freed}[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()
