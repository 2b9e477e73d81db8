"""torch_memory_saver's object, over pools of ours that sleep."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, Literal, NamedTuple, Optional

import torch

import commpool
from commpool import errors

from ._mem_pool import mem_pool
from ._tagged_pools import Member, TaggedPools

CpuBackupBackend = Literal["mmap", "pinned"]
_PLACES = {"pinned": "host", "mmap": "pageable"}


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
        self._of_graphs: dict[tuple[_Key, Any], torch.cuda.MemPool] = {}

    def _key(self, tag: str, cpu: bool, disk: bool, backend: Optional[str]) -> _Key:
        if cpu and disk:
            raise errors.InvalidArgument("enable_cpu_backup and enable_disk_backup exclude each other")
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
        with self._pools.scope(key, f"region {tag}", key.device):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph: torch.cuda.CUDAGraph, pool: Any = None, stream: Any = None,
                   capture_error_mode: str = "global", tag: str = "default", enable_cpu_backup: bool = False,
                   cpu_backup_backend: Optional[CpuBackupBackend] = None) -> Iterator[None]:
        """torch.cuda.graph whose memory can be paused. Graphs that are given one `pool` share memory here too."""
        key = self._key(tag, enable_cpu_backup, False, cpu_backup_backend)
        shared = None if pool is None else self._shared(key, pool)
        with torch.cuda.graph(cuda_graph, pool=shared, stream=stream, capture_error_mode=capture_error_mode):
            with contextlib.nullcontext() if shared else self._pools.scope(key, f"graph {tag}", key.device):
                yield

    def _shared(self, key: _Key, handle: Any) -> Any:
        """Instead of a handle that torch gave, that of a pool of ours."""
        if (key, handle) not in self._of_graphs:
            member = Member(f"graphs {key.tag}", key.device)
            self._pools.setdefault((key, handle), []).append(member)
            self._of_graphs[key, handle] = mem_pool(member.pool)
        return self._of_graphs[key, handle].id

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """What is made inside is torch's own, and stays."""
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            yield

    def _members(self, tag: Optional[str]) -> Iterator[tuple[_Key, Member]]:
        for key, member in self._pools.each():
            own = key if isinstance(key, _Key) else key[0]
            if tag is None or own.tag == tag:
                yield own, member

    def pause(self, tag: Optional[str] = None) -> None:
        """Gives the memory of a tag back, or all of it. Nothing for what is paused, and for a tag that nobody has.

        Raises:
          OutOfMemory: the host or the disk has no room for a backup; what was paused before stays so.
          FailedPrecondition: a capture is open.
        """
        for key, member in self._members(tag):
            if key.enable_disk_backup:
                member.sleep(keep="files", directory=self._directory)
            elif key.enable_cpu_backup:
                member.sleep(keep=_PLACES[key.cpu_backup_backend])
            else:
                member.sleep()

    def resume(self, tag: Optional[str] = None) -> None:
        """Makes memory at the same addresses, with what has a backup.

        Raises:
          OutOfMemory: the device is full, a RuntimeError too; what was resumed before stays so, and the rest paused.
        """
        for key, member in self._members(tag):
            if key.enable_cpu_backup and member.asleep:
                member.pool.retain(self.retain_cpu_backup)
            member.wake()

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> Optional[torch.Tensor]:
        """The backup of a tensor in a region, on the CPU: a copy, or the backup itself, valid until it is resumed, or,
        retained, paused. None for what is not paused and was not retained.

        Raises:
          InvalidArgument: the tensor is not contiguous.
          NotFound: it is in no region, or has no backup.
        """
        block = commpool.block_of(x)
        found = [member for _, member in self._members(None) if block and member.pool.handle == block.pool]
        if not found:
            raise errors.NotFound("the tensor was made in no region")
        try:
            kept: torch.Tensor = torch.from_dlpack(found[0].pool.kept(x))  # type: ignore[attr-defined]
        except errors.FailedPrecondition:
            return None
        except errors.NotFound:
            if found[0].asleep:
                raise
            return None
        return kept if zero_copy else kept.clone()

    def set_disk_backup_dir(self, path: str) -> None:
        """Where files go from now on; made where it is not there. A directory in memory (tmpfs) fails `pause`."""
        os.makedirs(path, exist_ok=True)
        self._directory = os.fspath(path)


torch_memory_saver = TorchMemorySaver()
