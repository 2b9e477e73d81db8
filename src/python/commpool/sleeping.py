"""Lets some of a program's pools sleep together, and communicators. The tag of a pool, given when it is made, says
which: weights, caches."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Union

from . import options
from ._library import library
from .errors import InvalidArgument, NotFound, living_pools, refusing
from .handles import Communicator, Pointer, communicator_handle, handle_array
from .sizes import index_of

_told: list[Callable[[], Any]] = []


def tell_when_awake(act: Callable[[], Any]) -> None:
    """Calls `act` after every call that wakes pools. A framework then does what it could not do while they slept."""
    if act not in _told:
        _told.append(act)


@contextlib.contextmanager
def waking() -> Iterator[None]:
    """Wraps a call that wakes pools. If it fails, some of its pools may be awake."""
    try:
        yield
    finally:
        for act in _told:
            act()


def _with_tag(tag: str) -> list[Any]:
    """The pools of the process with the tag, the oldest first.

    Raises:
      NotFound: there is none.
      InvalidArgument: the tag is empty, or no text.
    """
    if not options.text_of("tag", tag):
        raise InvalidArgument("the tag is empty")
    found = [pool for pool in living_pools() if pool.tag == tag and not pool.closed]
    if not found:
        known = sorted({pool.tag for pool in living_pools() if pool.tag and not pool.closed})
        raise NotFound(f"no pool has the tag \"{tag}\": there is {', '.join(known) or 'none'}")
    return found


def _call(call: Callable[..., Any], pools: list[Any], *arguments: Any) -> None:
    if pools:
        call(handle_array(pool.handle for pool in pools), len(pools), *arguments)


def sleep(*, tag: str, keep: options.KeepWord = "discard", graphs: options.GraphsWord = "refused",
          directory: Union[None, str, os.PathLike[str]] = None, only: Optional[Iterable[Pointer]] = None,
          retain: bool = False, constant: Iterable[Pointer] = (), level: Optional[int] = None) -> None:
    """Calls `Pool.sleep` for all pools of the process with the tag at once, the newest first: so windows come back.

    It skips pools that are asleep. Those of one home, and those without ranks, sleep all or none.
    """
    def call(given: Any) -> None:
        awake = [pool for pool in reversed(_with_tag(tag)) if not pool.asleep]
        _call(library.pools_sleep_keeping, awake, given)

    options.sleep_by(call, keep, graphs, directory, only, retain, constant, level)


def wake(*, tag: str, graphs: options.GraphsWord = "refused") -> None:
    """Calls `Pool.wake` for all pools of the process that have the tag and are asleep at once, the oldest first."""
    def call(accepted: int) -> None:
        _call(library.pools_wake, [pool for pool in _with_tag(tag) if pool.asleep], accepted,
              options.number_of("retain", "as_before"))

    with refusing(lambda _: call(options.NO_WORD)):
        accepted = options.number_of("graphs", graphs)
    with waking():
        call(accepted)


class CommunicatorMemory(NamedTuple):
    """What NCCL takes for a communicator itself on this rank's device, in bytes."""

    bytes: int
    sleeping_bytes: int  # the part that sleep gives back, or has given back
    asleep: bool


def communicator_memory(communicator: Communicator) -> CommunicatorMemory:
    """Asks NCCL, 2.29.7 or later, for its own memory of a communicator.

    Raises:
      NotSupported: NCCL is older.
    """
    nbytes, sleeping, asleep = library.communicator_memory(communicator_handle(communicator))
    return CommunicatorMemory(nbytes, sleeping, bool(asleep))


def sleep_communicator(communicator: Communicator, deadline_ms: int = 60000) -> None:
    """Gives NCCL's own memory of a communicator back, on all of its ranks. Nobody uses it until it is awake.

    Pools that are registered with it sleep before. The deadline bounds each wait of this call and of the wake.

    Raises:
      NotSupported: NCCL is older than 2.29.7. Nothing has changed.
      FailedPrecondition: on all ranks, where one cannot, or an awake pool is registered with it. Nothing has changed.
      CommunicatorError: it shares resources with a communicator that was split from it.
    """
    library.communicator_sleep(communicator_handle(communicator), index_of(deadline_ms, "deadline_ms", 48))


def wake_communicator(communicator: Communicator) -> None:
    """Makes that memory again, at its addresses, and checks it by a small collective. Wake pools after it.

    Raises:
      OutOfMemory: on all ranks, where a device has no room. The communicator sleeps on.
      CommpoolError: another one says that the communicator has to be aborted, where it does.
    """
    library.communicator_wake(communicator_handle(communicator))
