"""A trainer updates an engine's weights in place while the engine runs: two processes, and one copy of the weights."""

import torch
import torch.multiprocessing

import commpool.torch as commpool

LAYERS, WIDTH, STEPS = 4, 1 << 16, 50


def layers_of(weights):
    """The layers, as views of all weights."""
    return weights.view(LAYERS, WIDTH).unbind()


def engine(ticket, pipe):
    """Answers requests until it is told to stop. It knows a ticket, and no weights of its own."""
    block = commpool.Pool.import_(ticket).block(ticket)
    weights = block.tensor((LAYERS * WIDTH,), torch.float32)
    pipe.send(str(weights.device))
    answers, mixed, versions, stopped = 0, 0, [0], False
    while not stopped:
        stopped = pipe.poll()  # then this answer is the last
        with block.read():  # between two updates
            sums = [layer.sum() for layer in layers_of(weights)]
        found = {int(total.item()) // WIDTH for total in sums}
        answers, mixed = answers + 1, mixed + (len(found) > 1)
        versions += found
    pipe.send((answers > 0, mixed, versions == sorted(versions), versions[-1]))


def main():
    pool = commpool.Pool("weights")
    with commpool.use_pool(pool):
        weights = torch.zeros(LAYERS * WIDTH, device="cuda")
    torch.cuda.synchronize()  # what was written before the ticket
    context = torch.multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=engine, args=(pool.share(weights), theirs))
    process.start()
    print(f"the engine has them in place, on {pipe.recv()}")
    for _ in range(STEPS):
        with pool.update(weights):  # waits until the engine does not read
            for layer in layers_of(weights):
                layer.add_(1)  # what an optimizer does
    torch.cuda.synchronize()
    pipe.send("stop")
    answered, mixed, in_order, last = pipe.recv()
    process.join()
    print(f"it answered: {answered}, from weights of two steps: {mixed}, in order: {in_order}")
    print(f"after {STEPS} steps its last answer is of step {last}: {last == STEPS}")


if __name__ == "__main__":
    main()
