"""Others' names for sleep, over pools of ours that sleep: torch_memory_saver's object, and vLLM's CuMemAllocator. Both
make pools as they are asked for: of a key, which is a tag and how it is kept."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
import weakref
from typing import Any, Callable, Hashable, Iterable, Iterator, Literal, NamedTuple, Optional, Sequence, Union

import torch

import commpool
from commpool import errors

from ._install import keep_for_graphs
from ._mem_pool import mem_pool
from ._pool import Pool
from ._scope import use_pool

CpuBackupBackend = Literal["mmap", "pinned"]
_LEVELS: dict[int, tuple[str, ...]] = {1: ("weights",), 2: ()}  # the tags that an engine of vLLM keeps
_PLACES = {"pinned": "host", "mmap": "pageable"}


class Member:
    """One of them. Any thread."""

    def __init__(self, name: str, device: int, concurrent_replays: bool) -> None:
        """Makes the pool: no memory yet."""
        self.pool = Pool(name, device=device, concurrent_replays=concurrent_replays)
        self._lock = threading.RLock()

    @property
    def asleep(self) -> bool:
        """Also after a sleep that failed on its way back."""
        return self.pool.asleep

    def sleep(self, **how: Any) -> None:
        """Nothing where it sleeps already. The program minds graphs, as it has to with the names' own library."""
        with self._lock:
            if not self.asleep:
                self.pool.sleep(graphs="no_collectives", **how)

    def wake(self, retain: Optional[bool] = None) -> None:
        """Nothing where it is awake. Unless `retain` is None it says whether what was kept stays."""
        with self._lock:
            if self.asleep:
                self.pool.wake(retain=retain)

    def serves(self) -> bool:
        """Whether it is awake. One that nobody uses is woken for that, if there is memory."""
        with self._lock:
            if self.asleep and self.pool.stats().allocated_blocks.current == 0:
                with contextlib.suppress(errors.OutOfMemory):  # another pool may need less
                    self.wake()
            return not self.asleep


class TaggedPools(dict[Hashable, list[Member]]):
    """By key. While a key's pool sleeps what is new goes to another one, which sleeps with it from the next time on."""

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self._lock = threading.Lock()

    def awake(self, key: Hashable, name: str, device: int, taken: Optional[Callable[[Pool], bool]] = None) -> Pool:
        """The key's pool that serves now, made where there is none. With `taken` one for graphs, which is not taken."""
        with self._lock:
            for member in sorted(self.get(key, ()), key=lambda member: member.asleep):
                if not (taken and taken(member.pool)) and member.serves():
                    return member.pool
            self.setdefault(key, []).append(made := Member(name, device, concurrent_replays=taken is None))
            return made.pool

    def each(self) -> list[tuple[Any, Member]]:
        """All, with their keys."""
        with self._lock:
            return [(key, member) for key, members in self.items() for member in members]


def sleep_all(sleepers: Iterable[Callable[[], Any]]) -> None:
    """Calls them all, and raises what the first one raised that failed."""
    first: Optional[errors.CommpoolError] = None
    for sleep in sleepers:
        try:
            sleep()
        except errors.CommpoolError as error:
            first = first or error
    if first is not None:
        raise first


class CuMemAllocator:
    """`vllm.device_allocator.cumem.CuMemAllocator`. The process has one; `get_instance` returns it."""

    instance: Optional[CuMemAllocator] = None
    default_tag = "default"

    def __init__(self) -> None:
        """Only `get_instance` calls this."""
        self._pools = TaggedPools()

    @staticmethod
    def get_instance() -> CuMemAllocator:
        """The one instance of the process."""
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
        return CuMemAllocator.instance

    @contextlib.contextmanager
    def use_memory_pool(self, tag: Optional[str] = None) -> Iterator[None]:
        """Allocations inside, on torch's current device, sleep with the tag. At the end unused memory goes back."""
        tag = self.default_tag if tag is None else tag
        device = torch.cuda.current_device()
        pool = self._pools.awake((tag, device), f"cumem {tag}", device)
        try:
            with use_pool(pool):
                yield
        except BaseException:
            with contextlib.suppress(errors.CommpoolError):
                pool.trim()
            raise
        pool.trim()

    def sleep(self, offload_tags: Union[None, str, Sequence[str]] = None, *, level: Optional[int] = None) -> None:
        """Gives all memory back. Memory with one of the tags (by default the default tag) is kept in pinned memory.

        `level` is that of vLLM's engine: 1 keeps "weights" alone, and 2 nothing.

        Raises:
          OutOfMemory: the host has no room for what is kept; what has room sleeps.
          FailedPrecondition: a capture is open.
        """
        if level is not None:
            if level not in _LEVELS or offload_tags is not None:
                raise errors.InvalidArgument(f"level {level!r} is 1 or 2, and excludes offload_tags")
            offload_tags = _LEVELS[level]
        if offload_tags is None:
            offload_tags = (self.default_tag,)
        kept = (offload_tags,) if isinstance(offload_tags, str) else tuple(offload_tags)
        sleep_all(functools.partial(member.sleep, keep="host" if tag in kept else "discard")
                  for (tag, _), member in self._pools.each())
        gc.collect()
        torch.cuda.empty_cache()

    def wake_up(self, tags: Optional[Sequence[str]] = None) -> None:
        """Makes memory at the same addresses for these tags, or for all, and restores what was kept.

        Raises:
          OutOfMemory: the device is full; it is a RuntimeError too. Tags that woke before it are awake. The rest sleeps
            on with what was kept, and a second call continues.
        """
        for (tag, _), member in self._pools.each():
            if tags is None or tag in tags:
                member.wake()

    def get_current_usage(self) -> int:
        """The bytes of all its pools, asleep or awake."""
        return sum(member.pool.stats().reserved_bytes.current for _, member in self._pools.each())


class Asserted(errors.InvalidArgument, AssertionError):
    """What torch_memory_saver asserts."""


class _Key(NamedTuple):
    """What the memory of a region has alike."""

    tag: str
    enable_cpu_backup: bool
    enable_disk_backup: bool
    cpu_backup_backend: str
    device: int


class TorchMemorySaver:
    """`torch_memory_saver` as of version 0.0.10, for CUDA: the names and what they do.

    Tensors that a region makes for torch's current device lie in a pool of ours for each tag and way of backup.
    It needs no LD_PRELOAD, so `hook_mode` may be either, and means nothing.
    """

    enabled = True

    def __init__(self) -> None:
        """Reads the variables that torch_memory_saver reads."""
        self.hook_mode = "torch"
        self.retain_cpu_backup = os.environ.get("TMS_RETAIN_CPU_BACKUP", "").lower() in ("1", "true", "yes")
        self._backend = os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") or "pinned"
        self._directory = os.environ.get("TMS_DISK_BACKUP_DIR") or "/tmp"
        self._pools = TaggedPools()
        self._lock = threading.Lock()
        # By the handle that the program gave, by the MemPool's, which graph.pool() says, and by our pool's: as long as
        # a graph lives.
        self._of_graphs: weakref.WeakValueDictionary[tuple[_Key, Any], torch.cuda.MemPool] = (
            weakref.WeakValueDictionary())

    def _key(self, tag: str, cpu: bool, disk: bool, backend: Optional[str]) -> _Key:
        if cpu and disk:
            raise Asserted("enable_cpu_backup and enable_disk_backup exclude each other")
        if backend is not None and not cpu:
            raise errors.InvalidArgument("cpu_backup_backend needs enable_cpu_backup=True")
        resolved = (backend or self._backend) if cpu else ""
        if cpu and resolved not in _PLACES:
            raise errors.InvalidArgument(f"cpu_backup_backend {resolved!r} is none of {', '.join(_PLACES)}")
        return _Key(tag, cpu, disk, resolved, torch.cuda.current_device())

    @contextlib.contextmanager
    def region(self, tag: str = "default", enable_cpu_backup: bool = False, enable_disk_backup: bool = False,
               cpu_backup_backend: Optional[CpuBackupBackend] = None) -> Iterator[None]:
        """What is made inside can be paused: discarded, or kept on the host, or in files."""
        key = self._key(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with use_pool(self._pools.awake(key, f"region {tag}", key.device)):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph: torch.cuda.CUDAGraph, pool: Any = None, stream: Any = None,
                   capture_error_mode: str = "global", tag: str = "default", enable_cpu_backup: bool = False,
                   cpu_backup_backend: Optional[CpuBackupBackend] = None) -> Iterator[None]:
        """torch.cuda.graph whose memory can be paused. Graphs that are given one `pool` share memory here too."""
        key = self._key(tag, enable_cpu_backup, False, cpu_backup_backend)
        with self._lock:
            shared = self._mem_pool(key, pool)
        handle: Any = shared.id  # releases of torch type it differently
        with torch.cuda.graph(cuda_graph, pool=handle, stream=stream, capture_error_mode=capture_error_mode):
            yield
        cuda_graph.commpool_mem_pool = shared  # type: ignore[attr-defined]

    def _mem_pool(self, key: _Key, handle: Any) -> torch.cuda.MemPool:
        """With its own pool: a new one for None, else the same for the same handle, or for that of one of these."""
        keep_for_graphs()  # lets those go whose graphs are gone
        found = self._of_graphs.get((key, handle)) if handle else None
        if found is not None:
            return found
        pool = self._pools.awake((key, "graphs"), f"graphs {key.tag}", key.device,
                                 taken=lambda pool: (key, pool.handle) in self._of_graphs)
        made = mem_pool(pool)
        self._of_graphs.update({(key, handle): made, (key, made.id): made, (key, pool.handle): made})
        return made

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """What is made inside is torch's own, and stays."""
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            yield

    def _members(self, tag: Optional[str]) -> Iterator[tuple[_Key, Member]]:
        for key, member in self._pools.each():
            own = key if isinstance(key, _Key) else key[0]
            if not tag or own.tag == tag:
                yield own, member

    def _sleep(self, key: _Key, member: Member) -> None:
        if key.enable_disk_backup:
            os.makedirs(self._directory, exist_ok=True)
            member.sleep(keep="files", directory=self._directory)
        elif key.enable_cpu_backup:
            member.sleep(keep=_PLACES[key.cpu_backup_backend])
        else:
            member.sleep()

    def pause(self, tag: Optional[str] = None) -> None:
        """Gives the memory of a tag back; without one all. Nothing for what is paused, and for a tag that nobody has.

        Raises:
          OutOfMemory: the host or the disk has no room for a backup; what has room is paused, and the rest as before.
          FailedPrecondition: a capture is open.
        """
        sleep_all(functools.partial(self._sleep, key, member) for key, member in self._members(tag))

    def resume(self, tag: Optional[str] = None) -> None:
        """Makes memory at the same addresses, with what has a backup.

        Raises:
          OutOfMemory: the device is full, a RuntimeError too; what was resumed before stays so, and the rest paused.
        """
        for key, member in self._members(tag):
            member.wake(self.retain_cpu_backup if key.enable_cpu_backup else None)

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> Optional[torch.Tensor]:
        """The backup of a tensor in a region, on the CPU: a copy, or the backup itself, valid until it is resumed, or,
        retained, paused. None for what is not paused and was not retained.

        Raises:
          InvalidArgument: the tensor is not on a device, or not contiguous: an AssertionError too.
          NotFound: it is in no region, or has no backup.
        """
        if not (x.is_cuda and x.is_contiguous()):
            raise Asserted(f"a backup is that of a contiguous tensor on a device, and not of {x.shape} by {x.stride()} "
                           f"on {x.device}")
        block = commpool.block_of(x)
        found = [member for _, member in self._members(None) if block and member.pool.handle == block.pool]
        if not found:
            raise errors.NotFound("the tensor was made in no region")
        try:
            kept: torch.Tensor = torch.from_dlpack(  # type: ignore[attr-defined]
                found[0].pool.kept(x.reshape(-1).view(torch.uint8)))  # for DLPack does not have each type
        except errors.FailedPrecondition:
            return None
        except errors.NotFound:
            if found[0].asleep:
                raise
            return None
        kept = kept.view(x.dtype).view(x.shape)
        return kept if zero_copy else kept.clone()

    @property
    def memory_margin_bytes(self) -> int:
        """It can be set alone, as there."""
        raise NotImplementedError("memory_margin_bytes can be set, and not asked for")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        """What the pools of torch's current device leave of it: its `commpool.set_device_limit`. 0 for no limit."""
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        commpool.set_device_limit(device, max(total - value, 0) if value else None)

    def set_disk_backup_dir(self, path: str) -> None:
        """Where files go from now on; made where it is not there. A directory in memory (tmpfs) fails `pause`."""
        os.makedirs(path, exist_ok=True)
        self._directory = os.fspath(path)


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Around the start of subprocesses, which need no preloading here."""
    yield


torch_memory_saver = TorchMemorySaver()
