"""vLLM's CuMemAllocator over our pools, which can sleep."""

from __future__ import annotations

import contextlib
import functools
import gc
from typing import Iterator, Optional, Sequence, Union

import torch

from ._tagged_pools import TaggedPools, sleep_all


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
        with self._pools.scope((tag, device), "", device):
            yield
        pool.trim()

    def sleep(self, offload_tags: Union[None, str, Sequence[str]] = None) -> None:
        """Gives all memory back. Memory with one of the tags (by default the default tag) is kept in pinned memory.

        Raises:
          OutOfMemory: the host has no room for what is kept; what has room sleeps.
          FailedPrecondition: a capture is open.
        """
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
