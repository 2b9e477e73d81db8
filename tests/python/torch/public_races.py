"""Races that public projects have had, rebuilt small from what their issues say; with forgets=False as they were
mended. Imported by races_test.py.
"""

import torch

SIZE = 1 << 12


def deepspeed_7965(program):
    """ZeRO-2: the reduced copy is freed while the reduction's stream still uses it."""
    program.lends(program.ones * 2, lambda reduced: reduced.mul_(0.5))
    program.ones + 1  # pylint: disable=expression-not-assigned


def deepspeed_8061(program):
    """A bucket that two streams fill is reduced after one of them."""
    bucket = torch.zeros(2 * SIZE, device="cuda")
    program.third.wait_stream(program.main)
    program.on_third(lambda: bucket[SIZE:].copy_(program.ones))
    bucket[:SIZE].copy_(program.ones)
    program.side.wait_stream(program.main)
    program.waits(program.side, program.third)
    program.on_side(lambda: bucket.div_(2))


def deepspeed_5606(program):
    """The bucket is filled anew while it is reduced."""
    bucket = torch.zeros(SIZE, device="cuda")
    for _ in range(2):
        bucket.copy_(program.ones)
        program.side.wait_stream(program.main)
        program.on_side(lambda: bucket.div_(2))
        program.waits(program.main, program.side)


def deepspeed_7898(program):
    """The reduction waits for the default stream; autograd made the gradient on another."""
    weight = torch.ones(SIZE, device="cuda", requires_grad=True)
    program.third.wait_stream(program.main)
    gradient, = program.on_third(lambda: torch.autograd.grad((weight * 3).sum(), weight))
    program.side.wait_stream(program.main if program.forgets else program.third)
    program.on_side(lambda: gradient.div_(2))


def torchrec_4191(program):
    """The input's distribution changes rows of a cache that a prefetch still writes."""
    cache, rows = torch.zeros(64, 64, device="cuda"), torch.arange(8, device="cuda")
    program.side.wait_stream(program.main)
    program.on_side(lambda: cache.index_fill_(0, rows, 1.0))
    program.third.wait_stream(program.main)
    program.waits(program.third, program.side)
    program.on_third(lambda: cache.index_fill_(0, rows, 2.0))


def megatron_3670(program):
    """The hook of a gradient runs on the stream of its accumulator, which the reduction does not wait for."""
    gradient = torch.ones(SIZE, device="cuda")
    program.third.wait_stream(program.main)
    program.on_third(lambda: gradient.mul_(0.25))
    program.side.wait_stream(program.main)
    program.waits(program.side, program.third)
    program.on_side(lambda: gradient + 1)


def megatron_3140(program):
    """The event behind a copy to the device is recorded on the stream of the other direction."""
    kept, weight = torch.ones(SIZE).pin_memory(), torch.zeros(SIZE, device="cuda")
    program.side.wait_stream(program.main)
    program.on_side(lambda: weight.copy_(kept, non_blocking=True))
    program.main.wait_event((program.third if program.forgets else program.side).record_event())
    weight.sum()


def megatron_2652(program):
    """Parameters are made on the stream of the wrapper, and read on the default one."""
    weight = program.on_side(lambda: torch.full((SIZE,), 0.5, device="cuda"))
    program.waits(program.main, program.side)
    weight.sum()


def pytorch_180665(program):
    """HSDP that offloads: the stream of the copy to the host is not the one whose memory is freed."""
    kept = torch.empty(SIZE).pin_memory()
    reduced = program.on_side(lambda: torch.ones(SIZE, device="cuda"))
    program.third.wait_stream(program.side)
    program.on_third(lambda: kept.copy_(reduced, non_blocking=True))
    program.waits(program.side, program.third)
    del reduced
    program.on_side(lambda: torch.zeros(SIZE, device="cuda"))


def diffusers_13502(program):
    """A layer that comes back from the host is used while it is copied."""
    kept = torch.ones(64, 64).pin_memory()
    weight = program.on_side(lambda: kept.to("cuda", non_blocking=True))
    program.waits(program.main, program.side)
    weight @ weight  # pylint: disable=pointless-statement


def trl_7195(program):
    """What is to be copied to the host is made whole after the copying stream has waited."""
    saved, kept = torch.ones(64, 64, device="cuda"), torch.empty(64, 32).pin_memory()
    program.side.wait_stream(program.main)
    whole = saved[:, ::2].contiguous()
    program.waits(program.side, program.main)
    program.on_side(lambda: kept.copy_(whole, non_blocking=True))


PROGRAMS = [deepspeed_7965, deepspeed_8061, deepspeed_5606, deepspeed_7898, torchrec_4191, megatron_3670, megatron_3140,
            megatron_2652, pytorch_180665, diffusers_13502, trl_7195]
