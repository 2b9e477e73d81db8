"""Tensors of a pool in another process that has commpool, by tickets; run by tickets_test.py.

Each case prints what it found.
"""

import sys

import torch

import commpool.torch as commpool
from asked_process import Asked

COUNT = 1000
UPDATES = 20


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
                pipe.send(str(tensors[ticket][0].tensor((2 * COUNT,), torch.float32)))
            except ValueError as error:
                pipe.send(str(error))
    shared.close()


def filled(pool, value):
    with commpool.use_pool(pool):
        tensor = torch.full((COUNT,), float(value), device=f"cuda:{pool.device}")
    torch.cuda.synchronize(pool.device)
    return tensor


def in_place(device):
    """What one process writes the other reads in place, on the pool's device."""
    pool = commpool.Pool("weights", device=int(device))
    tensors = [filled(pool, value) for value in (1, 2)]
    tickets, other = [pool.share(tensor) for tensor in tensors], Asked(engine)
    print("there", [other.ask("take", ticket) for ticket in tickets] == [pool.device] * len(tickets))
    print("read", [other.ask("read", ticket) for ticket in tickets])
    print("refused", other.ask("try", tickets[0]))
    print("ends", other.end())
    pool.destroy()


def updated():
    """Each update on a stream of torch's own shows as a whole."""
    pool, stream = commpool.Pool("weights"), torch.cuda.Stream()
    tensor = filled(pool, 0)
    ticket, other = pool.share(tensor), Asked(engine)
    other.ask("take", ticket)
    sums = []
    for value in range(UPDATES):
        with torch.cuda.stream(stream), pool.update(tensor):
            tensor.fill_(value)
        sums.append(other.ask("read", ticket))
    print("sums", sums == [float(COUNT * value) for value in range(UPDATES)])
    print("ends", other.end())
    pool.destroy()


def freed():
    """A dropped tensor's memory serves again once the other has dropped its own."""
    pool, other = commpool.Pool("weights"), Asked(engine)
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
    globals()[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
