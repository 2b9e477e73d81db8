"""Measures which all-reduces of a group gain by windows: once in a process. All ranks agree on it, and reuse it."""

from __future__ import annotations

import gc
import logging
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

import commpool
from commpool.sizes import index_of

from . import _beside, _group
from ._advice import Advice, Row
from ._pool import Pool
from ._ring import bytes_of

_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = (_KIB, 4 * _KIB, 8 * _KIB, 32 * _KIB, 128 * _KIB, 512 * _KIB, _MIB, 2 * _MIB, 4 * _MIB, 8 * _MIB, 16 * _MIB,
          25 * _MIB, 64 * _MIB, 128 * _MIB)
_SIZES_EMULATED = (8 * _KIB, 128 * _KIB, _MIB)  # a processor copies each byte, so times say nothing about a GPU
_ROUNDS, _REPLAYS, _IN_A_GRAPH = 5, 3, 8

logger = logging.getLogger("commpool.torch")


# By the group's name and the minimum number of blocks.
_advice: dict[tuple[str, int], Advice] = {}


def advise(group: Any = None, *, sizes: Optional[Sequence[int]] = None, blocks: int = 0) -> Advice:
    """Measures all-reduces of a group in torch's memory and in windows. The first call is COLLECTIVE over the group.

        print(commpool.advise())
        with commpool.use_pool(pool, sizes=commpool.advise().sizes):
            ...

    It takes a second or less, once in a process for each group: later calls return the same object. Each time is the
    slowest rank's, so that all ranks choose the same.

    Args:
      group: None is the default group.
      sizes: the bytes to measure at. None: from 1 KiB to 128 MiB; on the emulator a few small ones.
      blocks: if not 0, the windows use a communicator beside the group's, whose kernels have at least so many blocks,
        as in `ddp`. 0: they use the group's own.
    """
    group = _group.checked_group(group)
    blocks = index_of(blocks, "blocks", 31)
    asked = group.group_name, blocks
    if asked not in _advice:
        if sizes is None:
            if not commpool.driver_description():
                commpool.initialize()
            sizes = _SIZES_EMULATED if "emulated" in commpool.driver_description() else _SIZES
        logger.info("measuring all-reduces of %d sizes on the %d ranks of group %s, once", len(sizes), group.size(),
                    group.group_name)
        _advice[asked] = agreed(group.size(), _group.gathered(group, _measured(group, sorted(sizes), blocks)), blocks)
        logger.info("%s", _advice[asked])
    return _advice[asked]


def agreed(ranks: int, everywhere: Sequence[Sequence[Sequence[float]]], blocks: int = 0) -> Advice:
    """The advice from each rank's measurements: (bytes, plain, windows) for each size."""
    rows = [Row(int(of_size[0][0]), max(row[1] for row in of_size), max(row[2] for row in of_size))
            for of_size in zip(*everywhere)]
    return Advice(ranks, tuple(rows), blocks)


def _measured(group: Any, sizes: Sequence[int], blocks: int) -> list[tuple[int, float, float]]:
    device = _group.device_of(group)
    _group.communicator_of(group, device)  # raises with advice if there is none
    with torch.cuda.device(device), Pool("advise", symmetric_across=group, reserve=max(sizes)) as pool:
        rows = measured_rows(group, _beside.with_blocks(group, pool, blocks) if blocks else group, pool, sizes)
        torch.cuda.synchronize()
        gc.collect()
    return rows


def measured_rows(group: Any, over: Any, pool: commpool.Pool, sizes: Sequence[int]) -> list[tuple[int, float, float]]:
    """Bytes, and microseconds on this rank: plain over `group`, and in a window over group `over`. COLLECTIVE."""
    in_window = bytes_of(pool, max(sizes)).zero_()
    plain = torch.zeros_like(in_window)
    return [(nbytes, *_both([(group, plain[:nbytes]), (over, in_window[:nbytes])])) for nbytes in sizes]


def _both(ways: Sequence[tuple[Any, torch.Tensor]]) -> tuple[float, float]:
    replays = [_graph(group, tensor.view(torch.float32)) for group, tensor in ways]
    best = [float("inf")] * 2
    for number in range(_ROUNDS):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            best[place] = min(best[place], _microseconds(ways[place][0], replays[place]))
    return best[0], best[1]


def _graph(group: Any, tensor: torch.Tensor) -> Callable[[], None]:
    """Captures all-reduces in a graph. If the host submitted them one by one, its time would hide the device's."""
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(_IN_A_GRAPH):
            dist.all_reduce(tensor, group=group)
    graph.replay()
    return graph.replay


def _microseconds(group: Any, replay: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    dist.barrier(group)
    torch.cuda.synchronize()
    replay()  # The ranks meet in it. Meanwhile the host submits the next ones.
    begin.record()
    for _ in range(_REPLAYS):
        replay()
    end.record()
    torch.cuda.synchronize()
    return float(1e3 * begin.elapsed_time(end) / (_REPLAYS * _IN_A_GRAPH))
