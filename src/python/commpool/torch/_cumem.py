"""vLLM's CuMemAllocator, over pools of ours that sleep."""

from __future__ import annotations

import contextlib
import functools
import gc
from typing import Iterator, Optional, Sequence, Union

import torch

from ._tagged_pools import TaggedPools, sleep_all


class CuMemAllocator:
    """`vllm.device_allocator.cumem.CuMemAllocator`: one for the process, from `get_instance`."""

    instance: Optional[CuMemAllocator] = None
    default_tag = "default"

    def __init__(self) -> None:
        """Of `get_instance` alone."""
        self._pools = TaggedPools()

    @staticmethod
    def get_instance() -> CuMemAllocator:
        """The process's one."""
        if CuMemAllocator.instance is None:
            CuMemAllocator.instance = CuMemAllocator()
        return CuMemAllocator.instance

    @contextlib.contextmanager
    def use_memory_pool(self, tag: Optional[str] = None) -> Iterator[None]:
        """What is made inside, for torch's current device, sleeps with the tag. At its end what is unused goes back."""
        tag = self.default_tag if tag is None else tag
        device = torch.cuda.current_device()
        pool = self._pools.awake((tag, device), f"cumem {tag}", device)
        with self._pools.scope((tag, device), "", device):
            yield
        pool.trim()

    def sleep(self, offload_tags: Union[None, str, Sequence[str]] = None) -> None:
        """Gives all memory back; what has one of the tags (by default the default one) is kept in pinned memory.

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
        """Makes memory at the same addresses for these tags, or for all, with what was kept.

        Raises:
          OutOfMemory: the device is full, a RuntimeError too. Tags that woke before are awake, the rest sleeps on with
            what was kept: a second call goes on.
        """
        for (tag, _), member in self._pools.each():
            if tags is None or tag in tags:
                member.wake()

    def get_current_usage(self) -> int:
        """The bytes of all its pools, asleep or awake."""
        return sum(member.pool.stats().reserved_bytes.current for _, member in self._pools.each())
