"""Pool for torch: on torch's devices, over process groups, and included in torch's statistics."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, Sequence, TypeVar

import torch
import torch.distributed as dist

import commpool
from commpool import errors
from commpool._library import library
from commpool.handles import NOT_GIVEN, Communicator, Device, Pointer, Stream
from commpool.pool import PoolOptions, telling
from commpool.sharing import AddressesWord
from commpool.sizes import Size, parse_size

from . import _beside, _call_lines, _ends, _group, _router
from ._install import ensure_installed
from ._shared import SharedPool, stream_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Owner = TypeVar("_Owner")

AgreementWord = Literal["tcp", "store"]
_MOMENT, _SECONDS = 0.001, 10
_OUTSIDE_OF_THE_SEQUENCE = (library.pools_verify, library.pools_rehome, library.pools_close)
# What needs no communicator of the pool's home.
_WITHOUT_HOME = {library.pools_close: "close", library.pools_rehome: "rehome", library.pools_deregister: "deregister"}


class Pool(commpool.Pool):
    """Like commpool.Pool, for torch's tensors.

        pool = commpool.Pool(symmetric_across=dist.group.WORLD, reserve="2GiB")
        with commpool.use_pool(pool):
            ...

    `device` is by default the group's, else torch's current one. `symmetric_across`, `register_with`, `deregister`,
    `abandon` and `rehome` take process groups, and a DeviceMesh of one dimension. If a group is destroyed before the
    pool is closed, the pool ends its registrations with it first. Ranks agree over TCP, or through the group's store
    with `agreement="store"`. If torch's backend has a hook for aborts (`abandons_itself`), the pool abandons its
    communicator before an abort.

    With `call_lines=True`, the error of diverged ranks names the Python line of the first call that differs. A routed
    allocation then takes some microseconds more.
    """

    __slots__ = ("abandons_itself", "kept_bytes", "_keeps_lines", "_registrations", "_home")
    _home: Optional[_ends.Registration]

    def __init__(self, name: str = "pool", *, device: Optional[Device] = None,
                 symmetric_across: Communicator = NOT_GIVEN, reserve: Optional[Size] = None,
                 agreement: AgreementWord = "tcp", call_lines: bool = False,
                 **options: Unpack[PoolOptions]) -> None:
        """Makes the pool. `options` are those of commpool.Pool, which also says what it raises.

        Args:
          agreement: how the ranks of a symmetric pool agree.
          call_lines: keeps the Python lines of a symmetric pool's calls.
        """
        symmetric_across = _group.group_of(symmetric_across)
        over_group = _group.is_group(symmetric_across)
        if device is None:
            device = _group.device_of(symmetric_across) if over_group else torch.cuda.current_device()
        if over_group and not _group.is_member(symmetric_across):
            raise errors.InvalidArgument("this rank is not in the group: a symmetric pool is made by its members alone")
        with telling([symmetric_across]):
            self._keeps_lines = symmetric_across is not NOT_GIVEN and _call_lines.wanted(call_lines)
            if agreement not in ("tcp", "store"):
                raise errors.InvalidArgument(f"agreement {agreement!r} is none of tcp, store")
            if agreement == "store" and not over_group:
                raise errors.InvalidArgument("agreement=\"store\" needs a process group in symmetric_across")
        if agreement == "store":
            options["all_gather"] = _group.store_agreement(symmetric_across, options.get("deadline_ms"))
        super().__init__(name, device=device, symmetric_across=symmetric_across, reserve=reserve, **options)
        if over_group:
            self._home = self._remember(symmetric_across)
            self._abandon_before_abort(symmetric_across)

    def _remember(self, group: Any) -> _ends.Registration:
        """Lets the end of the group end what NCCL knows of the pool there."""
        home = self._home.group if self._home is not None else group
        of_all = self.mode != "symmetric" or (
            _group.is_member(home) and dist.get_process_group_ranks(home) == dist.get_process_group_ranks(group))
        registration = _ends.Registration(group, _group.communicator_of(group, self.device), of_all)
        _ends.remember(self, registration)
        return registration

    def _abandon_before_abort(self, group: Any) -> None:
        communicator = _group.communicator_of(group, self.device)
        self.abandons_itself = _on_abort(_group.backend_of(group, self.device), self,
                                         lambda pool: pool.abandon(communicator))

    def _create(self, c_options: Any) -> None:
        super()._create(c_options)
        if self._keeps_lines:
            ensure_installed()
            _call_lines.watch(self.handle)
            weakref.finalize(self, _call_lines.forget, self.handle)

    def _learn(self, mode: Optional[str] = None) -> None:
        super()._learn(mode)
        self.abandons_itself, self.kept_bytes, self._home = False, 0, None
        self._registrations: dict[str, _ends.Registration] = {}

    def _collective(self, call: Any, *arguments: Any,
                    communicators: Optional[Sequence[Communicator]] = None) -> None:
        """Counts the calls that the ranks compare. If they differ, the error names the line of the first one."""
        own = None if communicators is None else [_group.or_none(_group.group_of(one)) for one in communicators]
        self._refuse_gone(call)
        try:
            super()._collective(call, *arguments, communicators=own)
        except errors.Disagreement as error:
            said = _call_lines.explanation(self.handle, error.message)
            raise errors.Disagreement(f"{error.message}. {said}" if said else error.message) from error
        if call not in _OUTSIDE_OF_THE_SEQUENCE:
            _call_lines.called(self.handle)
        self._note(call, own)

    def _refuse_gone(self, call: Any) -> None:
        name = _WITHOUT_HOME.get(call)
        _ends.refuse_gone(self, name or "go on")
        if name is None:
            _ends.refuse_homeless(self, "go on")

    def _note(self, call: Any, communicators: Optional[Sequence[Communicator]]) -> None:
        """Keeps what is known of the pool's groups up to date."""
        group: Any = communicators[0] if communicators else None
        if call == library.pools_close:
            _ends.forget(self)
            self._home = None  # a closed pool needs none
        elif not _group.is_member(group):
            return
        elif call == library.pools_register_with:
            self._remember(group)
        elif call == library.pools_deregister and group.group_name in self._registrations:
            self._registrations[group.group_name].ended = True
        elif call == library.pools_rehome:
            self._registrations.clear()
            self._home = None
            self._home = self._remember(group)

    def reserve(self, size: Size) -> None:
        """Makes free memory for at least `size` in one piece. torch.cuda.empty_cache then leaves this memory in the
        pool.
        """
        super().reserve(size)
        self._keep(self.stats().reserved_bytes.current)

    def trim(self, keep: Size = 0) -> int:
        """Gives free segments back to the driver until at most `keep` stay reserved; returns the bytes."""
        released = super().trim(keep)
        self._keep(self.stats().reserved_bytes.current if parse_size(keep, "keep") else 0)
        return released

    def _keep(self, nbytes: int) -> None:
        self.kept_bytes = nbytes
        router = _router.loaded()
        if router is not None:
            router.check(router.keep(self.handle, nbytes))

    def update(self, block: Pointer, stream: Stream = None) -> contextlib.AbstractContextManager[None]:
        """Around the submission of work that writes to a shared block; None is torch's current stream."""
        return super().update(block, stream_of(self.device, stream))

    @classmethod
    def import_(cls, ticket: str, *, device: Optional[Device] = None, addresses: AddressesWord = "any",
                deadline_ms: int = 60000) -> SharedPool:
        """Imports another process's pool by a ticket: see commpool.Pool.import_. Its blocks are torch's tensors too."""
        return SharedPool(ticket, device, addresses, deadline_ms)

    def abandon(self, communicator: Communicator, *, alive: bool = True) -> None:
        """After a loss, before a group is aborted: ends this rank's registrations with it, and with the communicators
        that `fsdp` and `ddp` made beside it, because they have the same ranks.
        """
        group = _group.group_of(communicator)
        for one in (group, *_beside.take_from(self, group)):
            self._abandon(one, alive)

    def _abandon(self, communicator: Communicator, alive: bool) -> None:
        """With a group that is gone NCCL cannot be asked, and torch does not tell its communicator any more."""
        known = self._registrations.get(communicator.group_name) if _group.is_member(communicator) else None
        if known is None:
            super().abandon(communicator, alive=alive)
            return
        super().abandon(known.communicator, alive=alive and not known.gone)
        known.ended = True

    def destroy(self) -> None:
        """Ends the handle, on this rank alone; segments live until their last block is freed."""
        _ends.forget(self)
        super().destroy()

    def close(self) -> None:
        """The clean end: deregisters everywhere and gives memory back. Collective for symmetric pools.

        It first frees cuBLAS workspaces in the pool, such as those that a backward() in a scope has left.

        Raises:
          FailedPrecondition: a symmetric pool has live tensors. Collectives that nobody waited for keep tensors too.
        """
        _drop_workspaces(self)
        try:
            super().close()
        except errors.FailedPrecondition as error:
            raise errors.FailedPrecondition(error.message + _kept_by_torch(self)) from error


def _kept_by_torch(pool: commpool.Pool) -> str:
    """Where tensors may be that the program has dropped, or does not think of; empty if that cannot be the reason."""
    live = {block.requested_bytes for block in pool.snapshot().blocks if block.state == "live"}
    if not live:
        return ""
    said = (f"{_call_lines.asked_at(pool.handle, sorted(live)[:-4:-1])}. Gradients? optimizer.zero_grad(); a loss or "
            "an output? del it")
    if dist.is_available() and dist.is_initialized():
        said += (". A collective with async_op=True that nobody waited for? work.wait(), or one more collective: torch "
                 "keeps its tensors until then")
    return said


def _drop_workspaces(pool: commpool.Pool) -> None:
    if _router.loaded() is None or not torch.cuda.is_available():
        return
    with contextlib.suppress(errors.CommpoolError):
        if pool.stats().allocated_blocks.current:
            torch._C._cuda_clearCublasWorkspaces()


def _on_abort(backend: Any, owner: _Owner, act: Callable[[_Owner], None]) -> bool:
    """Calls `act(owner)` before torch aborts a communicator, on a thread of its own and at any time, while the owner
    lives. Returns False if torch's backend has no such hook.

    Before 3.14, Python ends a thread that asks for its lock while the interpreter ends. A thread of torch has C++
    frames on its stack, so the whole process would end with it. Therefore the hook is removed before that.
    """
    if not getattr(backend, "supports_abort_hooks", False):
        return False
    living, dropped = weakref.ref(owner), threading.Event()

    def hook() -> None:
        found = living()
        if found is not None:
            act(found)

    number, last = id(dropped), weakref.ref(hook, lambda _: dropped.set())
    backend.register_abort_hook(number, hook)
    weakref.finalize(owner, _unregister, backend, number, dropped, last)  # at the latest when the interpreter ends
    return True


def _unregister(backend: Any, number: int, dropped: threading.Event, _last: Any) -> None:
    # torch copies its hooks under a lock, which this call takes too. Each copy takes Python's lock, which this thread
    # holds. So the sleep lets a thread that is copying have Python's lock first.
    time.sleep(_MOMENT)
    backend.unregister_abort_hook(number)
    if threading.current_thread() is threading.main_thread():
        dropped.wait(_SECONDS)  # waits for the copies that a thread of torch calls now
