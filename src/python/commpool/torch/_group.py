"""Process groups as communicators, which can give NCCL's own memory back for a while; agreement through their stores,
and data that their ranks share."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import commpool
from commpool import Agreement, RankMissing, _abi, add_communicator_source, errors
from commpool.pool import checked
from commpool.sizes import index_of

_DEADLINE_MS = 120000
_SLICE = datetime.timedelta(milliseconds=200)


def group_of(communicator: Any) -> Any:
    """The group of a DeviceMesh of one dimension; any other object itself.

    Raises:
      InvalidArgument: the mesh has several dimensions.
    """
    meshes = sys.modules.get("torch.distributed.device_mesh")
    if meshes is None or not isinstance(communicator, meshes.DeviceMesh):
        return communicator
    if communicator.ndim != 1:
        name = (communicator.mesh_dim_names or ("name",))[0]
        raise errors.InvalidArgument(f"a DeviceMesh of {communicator.ndim} dimensions is no group: pass one of them, "
                                     f"as mesh[{name!r}]")
    return communicator.get_group()


def is_member(communicator: Any) -> bool:
    """Whether it is a process group with this rank in it."""
    return dist.is_available() and isinstance(communicator, dist.ProcessGroup)


def is_group(communicator: Any) -> bool:
    """Whether it is a process group, or torch's value for ranks that are not in one."""
    return is_member(communicator) or (communicator is not None and or_none(communicator) is None)


def backend_of(group: Any, device: int) -> Any:
    """The group's backend for a device.

    Raises:
      FailedPrecondition: the group has none for CUDA devices.
    """
    try:
        return group._get_backend(torch.device("cuda", device))
    except RuntimeError as error:
        raise errors.FailedPrecondition(f"process group {group.group_name} has no backend for CUDA devices: make it "
                                        f"with backend \"nccl\" ({error})") from None


def device_of(group: Any) -> int:
    """The device of this rank in the group: the one that the group was made for, else torch's current one."""
    bound = getattr(group, "bound_device_id", None)
    return bound.index if bound is not None and bound.index is not None else torch.cuda.current_device()


def communicator_of(group: Any, device: Optional[int]) -> int:
    """The ncclComm_t of a group's backend.

    Raises:
      FailedPrecondition: the communicator does not exist yet, or the backend has none.
    """
    number = device_of(group) if device is None else device
    backend = backend_of(group, number)
    ask = getattr(backend, "comm_ptr", getattr(backend, "_comm_ptr", None))
    if ask is None:
        raise errors.FailedPrecondition(f"{type(backend).__name__} of process group {group.group_name} has no NCCL "
                                        "communicator: make the group with backend \"nccl\"")
    try:
        pointer = int(ask() if callable(ask) else ask)
    except RuntimeError as error:
        raise _not_yet(group, number, str(error).partition("\n")[0]) from None
    if pointer == 0:
        raise _not_yet(group, number, "its communicator is null")
    return pointer


def _not_yet(group: Any, device: int, why: str) -> errors.FailedPrecondition:
    if group not in distributed_c10d._world.pg_map:
        return errors.FailedPrecondition(f"process group {group.group_name} was destroyed")
    return errors.FailedPrecondition(f"process group {group.group_name} has no NCCL communicator on device {device} "
                                     f"yet ({why}): make it at once with init_process_group(..., device_id="
                                     f"torch.device(\"cuda\", {device})), or run one collective of the group before")


def or_none(communicator: Any) -> Any:
    """Turns torch's value for ranks that are not in a group into None, which stands for a missing communicator."""
    absent = dist.GroupMember.NON_GROUP_MEMBER if dist.is_available() else None
    return None if communicator is absent else communicator


def _source(communicator: Any, device: Optional[int]) -> Optional[int]:
    group = group_of(communicator)
    return communicator_of(group, device) if is_member(group) else None


add_communicator_source(_source)  # every function of commpool that takes a communicator takes a group too


def store_agreement(group: Any, deadline_ms: Optional[int] = None) -> Agreement:
    """Lets the ranks of a pool agree through the group's store instead of TCP connections. Without a deadline, or with
    an invalid one, it uses the pools' default; the pool refuses an invalid one over this agreement.

    Every rank makes its pools over the group in the same order, so the n-th pool is the same one everywhere. The store
    counts them: a process that is older than the others has made more, over groups of the same name.
    """
    rank, ranks = group.rank(), group.size()
    store = distributed_c10d._get_process_group_store(group)
    number = store.add(f"commpool/made by {rank}", 1)
    store = distributed_c10d.PrefixStore(f"commpool/{number}", store)
    most = _abi.CPoolOptions().deadline_ms
    with contextlib.suppress(errors.InvalidArgument):
        most = index_of(most if deadline_ms is None else deadline_ms, "deadline_ms", 48)
    return Agreement(_gatherer(store, rank, ranks, datetime.timedelta(milliseconds=most)), ranks)


def _gatherer(store: Any, rank: int, ranks: int, deadline: datetime.timedelta) -> Callable[[bytes], list[bytes]]:
    rounds = 0

    def gather(sent: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        store.set(f"{rounds}/{rank}", sent)
        parts = []
        for other in range(ranks):
            try:
                _wait_for(store, f"{rounds}/{other}", deadline)
            except (dist.DistStoreError, RuntimeError) as error:
                raise RankMissing(other) from error
            parts.append(store.get(f"{rounds}/{other}"))
        # All ranks have sent this round, so all have read the round before.
        store.delete_key(f"{rounds - 1}/{rank}")
        return parts

    return gather


def _wait_for(store: Any, key: str, deadline: datetime.timedelta) -> None:
    """Waits in slices: between two of them Python looks at its signals, such as Ctrl-C's."""
    end = time.monotonic() + deadline.total_seconds()
    while True:
        left = end - time.monotonic()
        try:
            store.wait([key], min(_SLICE, datetime.timedelta(seconds=max(left, 0.001))))
            return
        except (dist.DistStoreError, RuntimeError):
            if left <= _SLICE.total_seconds():
                raise


def checked_group(group: Any) -> Any:
    """The group itself; the default one for None.

    Raises:
      FailedPrecondition: there is none, or this rank is not in it.
    """
    if group is None:
        if not dist.is_available() or not dist.is_initialized():
            raise errors.FailedPrecondition("there is no process group: call torch.distributed.init_process_group(...)")
        return dist.group.WORLD
    group = group_of(group)
    if not is_member(group):
        raise errors.InvalidArgument(f"{group!r} is no process group that this rank is in")
    return group


def check_windows(pool: commpool.Pool, taker: str, across: str = "group") -> None:
    """Raises InvalidArgument if it is not a symmetric pool. The message says what the pool must be symmetric across."""
    if checked(pool, taker).mode != "symmetric":
        raise errors.InvalidArgument(f"{pool!r} has no windows: make it with symmetric_across={across}")


def gathered(group: Any, said: Any) -> list[Any]:
    """Returns what every rank says, rank 0 first. It can be anything that JSON can hold.

    Raises:
      RankMissing: a rank did not come.
    """
    agreement = store_agreement(group, _DEADLINE_MS)
    return [json.loads(bytes(part)) for part in agreement.all_gather(json.dumps(said).encode())]


def same_everywhere(group: Any, what: str, lines: Sequence[str]) -> None:
    """Compares lines of text on all ranks. If a line differs, every rank raises the same error.

    Raises:
      Disagreement: it names the first line that differs, and both ranks.
    """
    everywhere = gathered(group, list(lines))
    first = everywhere[0]
    for rank, other in enumerate(everywhere):
        if other == first:
            continue
        place = next((place for place, (one, two) in enumerate(zip(first, other)) if one != two),
                     min(len(first), len(other)))
        here, there = (of[place] if place < len(of) else "nothing" for of in (first, other))
        raise errors.Disagreement(f"the ranks of group {group.group_name} have different {what}: number {place} is "
                                  f"{here} on rank 0 and {there} on rank {rank}. Nothing was changed")


def refuse(group: Any, what: str, why: Exception) -> None:
    """Takes part in `same_everywhere` for a rank with wrong arguments. The other ranks wait there, and hear why."""
    same_everywhere(checked_group(group), what, [f"refused, for {why}"])


def sleep_group(group: Any = None, *, deadline_ms: int = 60000) -> None:
    """Gives the memory of a group's NCCL communicator back. COLLECTIVE: every rank of the group calls it, and uses the
    group no more until `wake_group`; None is the default group.

    Pools that are registered with the group sleep before, and wake after `wake_group`. Each call is for the
    communicator of this rank's device.

    Raises:
      NotSupported: NCCL is older than 2.29.7. Nothing has changed.
      FailedPrecondition: on all ranks, where one cannot, or an awake pool is registered with it. Nothing has changed.
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
