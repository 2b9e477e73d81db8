"""Small programs that forget one wait each; with forgets=False the same program waits. Imported by races_test.py."""

import time

import torch
import torch.distributed as dist


class Program:
    """Streams and memory of one program. `forgets` says whether it leaves the wait out."""

    def __init__(self, forgets):
        self.forgets = forgets
        self.main, self.side, self.third = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
        self.ones = torch.ones(1 << 12, device="cuda")
        torch.cuda.synchronize()

    def waits(self, later, earlier):
        if not self.forgets:
            later.wait_stream(earlier)

    def on_side(self, work):
        with torch.cuda.stream(self.side):
            return work()

    def on_third(self, work):
        with torch.cuda.stream(self.third):
            return work()

    def lends(self, tensor, work):
        """The side stream works on a tensor of the main one, which has to be recorded."""
        self.side.wait_stream(self.main)
        self.on_side(lambda: work(tensor))
        if not self.forgets:
            tensor.record_stream(self.side)
        return tensor


def reads_before_it_is_written(program):
    product = program.ones * 3
    program.waits(program.side, program.main)
    program.on_side(lambda: torch.tanh(product))
    product.record_stream(program.side)


def reads_the_side_streams_result(program):
    made = program.on_side(lambda: program.ones * 3)
    program.waits(program.main, program.side)
    made.sum()
    made.record_stream(program.main)


def writes_while_it_is_read(program):
    program.on_side(lambda: program.ones.cumsum(0))
    program.waits(program.main, program.side)
    program.ones.add_(1)


def writes_twice(program):
    program.on_side(lambda: program.ones.mul_(2))
    program.waits(program.main, program.side)
    program.ones.mul_(3)


def multiplies_matrices(program):
    matrix = program.ones.view(64, 64) * 2
    program.waits(program.side, program.main)
    program.on_side(lambda: matrix @ matrix)
    matrix.record_stream(program.side)


def forgets_to_record_the_stream(program):
    product = program.lends(program.ones * 3, torch.tanh)
    kept = torch.empty_like(product)
    del product
    kept.fill_(1)


def frees_and_makes_anew(program):
    program.lends(program.ones * 3, torch.tanh)
    torch.full_like(program.ones, 7)


def uses_columns(program):
    matrix = program.ones.view(64, 64)
    first = 33 if program.forgets else 32
    program.on_side(lambda: matrix[:, :first].exp_())
    matrix[:, 32:].exp_()


def uses_every_other_element(program):
    program.on_side(lambda: program.ones[::2].exp_())
    program.ones[2 if program.forgets else 1::2].exp_()


def copies_on_another_stream(program):
    product = program.ones * 3
    target = torch.empty_like(product)
    torch.cuda.synchronize()
    product.mul_(2)
    program.waits(program.side, program.main)
    program.on_side(lambda: target.copy_(product))


def copies_to_the_host(program):
    pinned = torch.empty(1 << 12, pin_memory=True)
    program.ones.mul_(2)
    program.waits(program.side, program.main)
    program.on_side(lambda: pinned.copy_(program.ones, non_blocking=True))


def prefetches(program):
    pinned = torch.ones(1 << 12).pin_memory()
    batch = program.on_side(lambda: pinned.to("cuda", non_blocking=True))
    program.waits(program.main, program.side)
    batch.mul(2)
    batch.record_stream(program.main)


def waits_for_an_old_event(program):
    event = torch.cuda.Event()
    if program.forgets:
        event.record()
    program.ones.mul_(2)
    if not program.forgets:
        event.record()
    program.side.wait_event(event)
    program.on_side(lambda: program.ones.sum())


def waits_for_the_wrong_stream(program):
    program.on_side(lambda: program.ones.mul_(2))
    program.third.wait_stream(program.main if program.forgets else program.side)
    program.on_third(lambda: program.ones.sum())


def reads_a_gradient_of_another_stream(program):
    weight = program.ones.clone().requires_grad_()
    torch.cuda.synchronize()
    program.on_side(lambda: (weight * 2).sum().backward())
    program.on_side(lambda: weight.grad.add_(1))
    program.waits(program.main, program.side)
    weight.grad.sum()


def steps_while_gradients_are_scaled(program):
    weight = torch.nn.Parameter(program.ones.clone())
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    torch.cuda.synchronize()
    program.on_side(lambda: weight.grad.mul_(0.5))
    program.waits(program.main, program.side)
    optimizer.step()


def replays_a_graph(program):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.ones.mul_(2)
    torch.cuda.synchronize()
    program.on_side(graph.replay)
    program.waits(program.main, program.side)
    program.ones.sum()
    torch.cuda.synchronize()  # before the graph goes


def draws(program):
    program.on_side(lambda: program.ones.normal_())
    program.waits(program.main, program.side)
    program.ones.abs()


def convolves(program):
    image = program.ones.view(1, 1, 64, 64)
    weight = torch.ones(1, 1, 3, 3, device="cuda")
    torch.cuda.synchronize()
    program.on_side(lambda: weight.mul_(2))
    program.waits(program.main, program.side)
    torch.nn.functional.conv2d(image, weight)


def looks_up_an_embedding(program):
    table = program.ones.view(64, 64)
    index = torch.zeros(4, dtype=torch.long, device="cuda")
    torch.cuda.synchronize()
    program.on_side(lambda: index.add_(1))
    program.waits(program.main, program.side)
    torch.nn.functional.embedding(index, table)


def _allocators_hear(program):
    """PyTorch's allocators ask whether the side stream is done with what was freed, and hear that it is."""
    lent, pinned = torch.ones_like(program.ones), torch.ones(1 << 12).pin_memory()
    program.side.wait_stream(program.main)
    program.on_side(lambda: (lent.tanh(), pinned.to("cuda", non_blocking=True)))
    lent.record_stream(program.side)
    del lent, pinned
    time.sleep(0.05)
    return torch.ones_like(program.ones), torch.ones(1 << 12).pin_memory().to("cuda", non_blocking=True)


def reads_after_allocators_have_heard(program):
    program.on_side(lambda: program.ones.mul_(2))
    _allocators_hear(program)
    program.waits(program.main, program.side)
    program.ones.sum()


def reads_pinned_memory_after_allocators_have_heard(program):
    pinned = torch.empty(1 << 12, pin_memory=True)
    program.on_side(lambda: pinned.copy_(program.ones, non_blocking=True))
    _allocators_hear(program)
    program.waits(program.main, program.side)
    torch.empty_like(program.ones).copy_(pinned, non_blocking=True)


def frees_before_allocators_have_heard(program):
    lent = [program.lends(torch.ones_like(program.ones), torch.tanh) for _ in range(2)]
    lent[1].record_stream(program.side)
    del lent
    time.sleep(0.05)
    return torch.full_like(program.ones, 7), torch.full_like(program.ones, 7)


def adds_sums_that_their_process_group_has_seen(program):
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=program.ones.device)
    sums = [program.ones * number for number in range(3)]
    torch.cuda.synchronize()
    works = [dist.all_reduce(one, async_op=True) for one in sums]
    time.sleep(0.3)
    for work in works if not program.forgets else []:
        work.wait()
    sums[0].add_(1)
    torch.cuda.synchronize()
    dist.destroy_process_group()


def reads_an_element(program):
    program.on_side(lambda: program.ones.mul_(2))
    program.waits(program.main, program.side)
    program.ones[0].item()


def grows(program):
    program.on_side(lambda: program.ones.mul_(2))
    program.waits(program.main, program.side)
    program.ones.resize_(1 << 13)


FURTHER = [reads_after_allocators_have_heard, reads_pinned_memory_after_allocators_have_heard,
           frees_before_allocators_have_heard, adds_sums_that_their_process_group_has_seen, reads_an_element, grows]

PROGRAMS = [reads_before_it_is_written, reads_the_side_streams_result, writes_while_it_is_read, writes_twice,
            multiplies_matrices, forgets_to_record_the_stream, frees_and_makes_anew, uses_columns,
            uses_every_other_element, copies_on_another_stream, copies_to_the_host, prefetches, waits_for_an_old_event,
            waits_for_the_wrong_stream, reads_a_gradient_of_another_stream, steps_while_gradients_are_scaled,
            replays_a_graph, draws, convolves, looks_up_an_embedding]
