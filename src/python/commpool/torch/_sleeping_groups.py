"""Process groups that give NCCL's own memory back for a while."""

from __future__ import annotations

from typing import Any

import commpool

from ._group import checked_group, communicator_of


def sleep_group(group: Any = None, *, deadline_ms: int = 60000) -> None:
    """Gives the memory of a group's NCCL communicator back. COLLECTIVE: every rank of the group calls it, and uses the
    group no more until `wake_group`; None is the default group.

    Pools that are registered with the group sleep before, and wake after `wake_group`. Each call is for the
    communicator of this rank's device.

    Raises:
      NotSupported: NCCL is older than 2.29.7. Nothing has changed.
      FailedPrecondition: on all ranks, where one cannot. Nothing has changed.
      CommunicatorError: it shares resources with a group that was split from it.
    """
    commpool.sleep_communicator(communicator_of(checked_group(group), None), deadline_ms)


def wake_group(group: Any = None) -> None:
    """Makes that memory again, at its addresses, and checks it by a small collective. COLLECTIVE.

    Raises:
      OutOfMemory: on all ranks, where a device has no room. The group sleeps on.
    """
    commpool.wake_communicator(communicator_of(checked_group(group), None))


def group_memory(group: Any = None) -> commpool.CommunicatorMemory:
    """What NCCL takes for the group's communicator itself on this rank's device.

    Raises:
      NotSupported: NCCL is older than 2.29.7.
    """
    return commpool.communicator_memory(communicator_of(checked_group(group), None))
