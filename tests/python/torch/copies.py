"""Replaces FSDP2's fused copies by plain ones, because the emulator has kernels only for the plain ones."""

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives


def _copy_each(destinations, sources):
    for destination, source in zip(destinations, sources):
        destination.copy_(source)


def _split(tensor, sizes, dim=0, *, out):
    _copy_each(out, tensor.split(sizes, dim))


def _join_gradients(gradients, joined, ranks):
    rows, done = joined.view(ranks, -1), 0
    for gradient in gradients:
        width = gradient.numel() // ranks
        rows[:, done:done + width].copy_(gradient.view(ranks, width))
        done += width


def use():
    """Uses them from now on in this process."""
    torch._foreach_copy_ = _copy_each
    torch.split_with_sizes_copy = _split
    _fsdp_collectives.foreach_reduce_scatter_copy_in = _join_gradients
