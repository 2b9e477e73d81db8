"""Which all-reduces gain by windows on this group: measured once in a process, agreed by all ranks, reused."""

from __future__ import annotations

import dataclasses
import gc
import logging
from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

import commpool
from commpool.sizes import format_size

from . import _group
from ._agreed import checked_group, gathered
from ._pool import Pool
from ._ring import bytes_of

_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = (8 * _KIB, 32 * _KIB, 128 * _KIB, 512 * _KIB, _MIB, 2 * _MIB, 4 * _MIB, 8 * _MIB, 16 * _MIB, 25 * _MIB)
_DEFAULT_BUCKET = 25 * _MIB  # torch's
_ROUNDS, _REPLAYS, _IN_A_GRAPH = 5, 3, 8
_WORTH_IT = 0.98  # less of a gain is noise

logger = logging.getLogger("commpool.torch")
_advice: dict[str, Advice] = {}


class Row(NamedTuple):
    """An all-reduce of so many bytes: microseconds in torch's memory and in windows, of the slowest rank."""

    nbytes: int
    plain_us: float
    window_us: float


@dataclasses.dataclass(frozen=True)
class Advice:
    """What was measured, and what follows: the same on every rank."""

    ranks: int
    rows: tuple[Row, ...]

    def _gains(self) -> list[Row]:
        return [row for row in self.rows if row.window_us <= _WORTH_IT * row.plain_us]

    @property
    def sizes(self) -> Optional[tuple[int, int]]:
        """The least and the most bytes of tensors that windows serve faster, for `use_pool(sizes=...)`; None for none.

        The range ends before the first size above that is slower in windows: it has no gaps.
        """
        gains = self._gains()
        if not gains:
            return None
        most = gains[0]
        for row in self.rows[self.rows.index(gains[0]):]:
            if row not in gains:
                break
            most = row
        return gains[0].nbytes, most.nbytes

    @property
    def bucket_bytes(self) -> int:
        """Of DDP's gradient buckets: where windows gain, the size that moves most bytes a second; else torch's own."""
        gains = [row for row in self._gains() if row.nbytes >= _MIB]
        return min(gains, key=lambda row: row.window_us / row.nbytes).nbytes if gains else _DEFAULT_BUCKET

    def __str__(self) -> str:
        lines = [f"all-reduce over {self.ranks} ranks, us: plain, in windows"]
        lines += [f"{format_size(row.nbytes):>10}{row.plain_us:10.1f}{row.window_us:10.1f}" for row in self.rows]
        sizes = self.sizes
        lines.append(f"windows gain from {format_size(sizes[0])} to {format_size(sizes[1])}" if sizes else
                     "windows gain at none of these sizes")
        return "\n".join([*lines, f"gradient buckets of {format_size(self.bucket_bytes)}"])


def advise(group: Any = None, *, sizes: Sequence[int] = _SIZES) -> Advice:
    """Measures all-reduces of a group in torch's memory and in windows; COLLECTIVE over the group at its first call.

        print(commpool.advise())
        with commpool.use_pool(pool, sizes=commpool.advise().sizes):
            ...

    It takes some hundred milliseconds, once in a process for each group: later calls return the same object. Each
    figure is the slowest rank's, so that all ranks choose the same.

    Args:
      group: None is the default group.
      sizes: bytes to measure at.
    """
    group = checked_group(group)
    known = _advice.get(group.group_name)
    if known is None:
        known = agreed(group.size(), gathered(group, _measured(group, sorted(sizes))))
        _advice[group.group_name] = known
        logger.info("%s", known)
    return known


def agreed(ranks: int, everywhere: Sequence[Sequence[Sequence[float]]]) -> Advice:
    """The advice of what each rank measured: (bytes, plain, windows) by size."""
    rows = [Row(int(of_size[0][0]), max(row[1] for row in of_size), max(row[2] for row in of_size))
            for of_size in zip(*everywhere)]
    return Advice(ranks, tuple(rows))


def _measured(group: Any, sizes: Sequence[int]) -> list[tuple[int, float, float]]:
    device = _group.device_of(group)
    _group.communicator_of(group, device)  # says what to do where there is none
    with torch.cuda.device(device), Pool("advise", symmetric_across=group, reserve=max(sizes)) as pool:
        rows = _rows(group, pool, sizes)
        torch.cuda.synchronize()
        gc.collect()
    return rows


def _rows(group: Any, pool: commpool.Pool, sizes: Sequence[int]) -> list[tuple[int, float, float]]:
    in_window = bytes_of(pool, max(sizes)).zero_()
    plain = torch.zeros_like(in_window)
    return [(nbytes, *_both(group, plain[:nbytes], in_window[:nbytes])) for nbytes in sizes]


def _both(group: Any, plain: torch.Tensor, in_window: torch.Tensor) -> tuple[float, float]:
    replays = [_graph(group, tensor.view(torch.float32)) for tensor in (plain, in_window)]
    best = [float("inf")] * 2
    for number in range(_ROUNDS):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            best[place] = min(best[place], _microseconds(group, replays[place]))
    return best[0], best[1]


def _graph(group: Any, tensor: torch.Tensor) -> Callable[[], None]:
    """All-reduces in a graph: submitted one by one, the host's time would hide the device's."""
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
    replay()  # The ranks meet in it, and the host submits the next ones meanwhile.
    begin.record()
    for _ in range(_REPLAYS):
        replay()
    end.record()
    torch.cuda.synchronize()
    return float(1e3 * begin.elapsed_time(end) / (_REPLAYS * _IN_A_GRAPH))

