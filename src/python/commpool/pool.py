"""Pool: private memory with its own backing, peers, registrations, limits and statistics."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import warnings
import weakref
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence, TypedDict, TypeVar, Union, cast

from . import _abi, agreement, blocks, options
from .arrays import Array, Kept, made_in
from ._library import library
from .backings import UserBacking
from .errors import InvalidArgument, living, living_pools, refusing
from .statistics import AccessWord, access_in
from .handles import NOT_GIVEN, Communicator, Device, Pointer, Stream, communicator_handle, device_array
from .handles import device_number, home_handle, pointer_of
from .inspection import Inspected
from .recordings import Recording, StacksWord, record
from .registering import Registering
from .runtime import Budget
from .sharing import Sharer
from .sizes import Size, index_of, parse_size
from .together import Together

_REFUSED = 2**64 - 1  # for commpool_pool_options.given: the pool's name then says why


class PlainFunctions(NamedTuple):
    """Addresses of C functions without a context, as torch.cuda.MemPool, vLLM and SGLang take them."""

    allocate: int
    free: int


class PoolOptions(TypedDict, total=False):
    """The options of Pool besides name, device, symmetric_across and reserve, for type checkers of functions that pass
    them on.
    """

    backing: Union[None, options.BackingWord, UserBacking]
    location: options.LocationWord
    numa_node: Optional[int]
    frees: options.FreesWord
    mode: Optional[options.ModeWord]
    moves: Optional[options.MovesWord]
    peers: Union[Device, Iterable[Device]]
    grants: Optional[options.GrantsWord]
    limit: Optional[Size]
    budget: Union[None, str, Budget]
    alignment: Optional[Size]
    segment: Optional[Size]
    granularity: Optional[Size]
    release_threshold: Optional[Size]
    deadline_ms: Optional[int]
    all_gather: Optional[agreement.Agreement]
    on_lost_rank: Optional[Callable[[int, bool], None]]
    tag: str
    streams: options.StreamsWord
    concurrent_replays: bool


_Make = TypeVar("_Make", bound=Callable[..., None])


def _telling_of_keywords(make: _Make) -> _Make:
    """A Pool's __init__ that also tells the other ranks of keywords that it does not have, with which Python would not
    begin it.
    """
    signature = inspect.signature(make)

    @functools.wraps(make)
    def begin(self: Pool, *given: Any, **words: Any) -> None:
        with self._telling(words.get("symmetric_across", NOT_GIVEN), words.get("all_gather")):
            options.refuse_unknown("Pool()", words, signature)
            try:
                signature.bind(self, *given, **words)
            except TypeError as error:
                raise TypeError(f"Pool(): {error}") from None
        make(self, *given, **words)

    return cast(_Make, begin)


class Pool(Together, Sharer, Registering, Inspected):
    """Memory of one device for what is routed to it (`use_pool`) or asked of it (`allocate`).

        pool = commpool.Pool("activations", limit="2GiB")
        with commpool.use_pool(pool):
            ...
        print(pool.stats())

    A pool across a communicator is *symmetric*: its blocks lie at equal offsets on every rank, in windows. To make it,
    `reserve`, `reclaim`, `trim`, `verify`, `register_with`, `deregister`, `sleep`, `wake`, `rehome` and `close` are
    then COLLECTIVE: every rank calls them in one order. As a context manager a pool is closed and destroyed at the end;
    where an exception leaves, it is only destroyed, since other ranks know nothing of the exception.

    Raises:
      NotFound: by every method, once the pool is destroyed.
      FailedPrecondition: by what needs memory, while the pool sleeps.
      DriverError, CommunicatorError: a call of CUDA's or NCCL's failed.
      Disagreement: by what is collective: ranks asked for different things, or called in different orders.
      RemoteFailure, DeadlineExceeded: by what is collective: another rank failed, or did not answer within deadline_ms.
    """

    __slots__ = ("handle", "name", "device", "backing", "mode", "tag", "_finalizer", "_orders_frees", "__weakref__")

    @_telling_of_keywords
    def __init__(self, name: str = "pool", *, device: Device = 0, symmetric_across: Communicator = NOT_GIVEN,
                 reserve: Optional[Size] = None, backing: Union[None, options.BackingWord, UserBacking] = None,
                 location: options.LocationWord = "device", numa_node: Optional[int] = None,
                 frees: options.FreesWord = "deferred", mode: Optional[options.ModeWord] = None,
                 moves: Optional[options.MovesWord] = None, peers: Union[Device, Iterable[Device]] = (),
                 grants: Optional[options.GrantsWord] = None, limit: Optional[Size] = None,
                 budget: Union[None, str, Budget] = None, alignment: Optional[Size] = None,
                 segment: Optional[Size] = None, granularity: Optional[Size] = None,
                 release_threshold: Optional[Size] = None, deadline_ms: Optional[int] = None,
                 all_gather: Optional[agreement.Agreement] = None,
                 on_lost_rank: Optional[Callable[[int, bool], None]] = None, tag: str = "",
                 streams: options.StreamsWord = "may_die", concurrent_replays: bool = True) -> None:
        """Makes the pool; no segment yet, unless `reserve` says how much.

        Sizes are bytes, or texts such as "64MiB"; "64MB" means the same. What is None COMMPOOL_CONF may set.

        Args:
          name: for messages and statistics.
          device: whose allocations it serves; "cuda" is torch's current one, or that of the driver's current context.
          symmetric_across: home communicator of a symmetric pool; by default the pool is none.
          reserve: free memory to make at once, a size; default none.
          backing: "vmm", the default, can do everything that NCCL asks for; "cuda" is cudaMalloc, "nccl" ncclMemAlloc,
            "pinned" memory of the host for the CPU and all devices, by exact size.
          location, numa_node: "host_numa" is the host's memory at that node; None is the nearest, if "pinned" any.
          frees: "ordered": the ranks of a symmetric pool free in lockstep, the program promises; of a "pinned" pool,
            the CPU writes into a block only behind the stream's work. Else a pinned block waits for that to pass.
          mode: "fixed", the default, or "expandable", which moves free pages to where a request needs them.
          moves: of an expandable pool; "eager", the default, or "under_pressure": only where there is no room to grow.
          peers, grants: other devices of this process that may access it; "read_write", the default; of "vmm": "read".
          limit: the most that all segments take together, a size; default none but the device's memory.
          budget: whose limit it shares with other pools, a Budget or its name; default none.
          alignment: blocks begin at multiples of it: a size, a power of two from 512; default 512.
          segment: the least size of a segment; default 2 MiB, 8 MiB or the request, by the request's size.
          granularity: segments are multiples of it: a size, a power of two; default the backing's least, mostly 2 MiB.
          release_threshold: free memory beyond this size goes back to the driver; default all stays.
          deadline_ms: of every wait for other ranks and for the device, in milliseconds; default 60000.
          all_gather: how the ranks agree where not over TCP.
          on_lost_rank: `on_lost_rank(rank, in_flight)` hears of a rank of home that is lost, on a thread of its own.
          streams: "outlive": the program promises that streams outlive their use here: `release_stream` comes before
            a stream ends. Then other streams reuse what one frees after a wait of the device's, not of the host's.
          concurrent_replays: False: its graphs share memory; what one wrote holds until another runs, never beside it.
          tag: names pools that `commpool.sleep(tag=...)` and `commpool.wake` take together.

        Raises:
          InvalidArgument: an option is unknown, excludes another, or is no value that it takes; or there is no such
            device. Where one rank's is wrong, the other ranks raise it too.
          NotSupported: this driver, device or NCCL cannot do it, or there is no such peer.
          OutOfMemory: `reserve` asks for more than there is.
        """
        with self._telling(symmetric_across, all_gather):
            self.handle, self.name, self.device, self.tag = 0, name, device_number(device), tag
            at_once = None if reserve is None else parse_size(reserve, "reserve")
            c_options = _abi.CPoolOptions()
            c_options.name, c_options.device = options.text_of("name", name), self.device
            options.text_of("tag", tag)
            c_options.symmetric_across = home_handle(symmetric_across, self.device)
            options.set_backing(c_options, backing)
            c_options.location = options.number_of("location", location)
            c_options.numa_node = -1 if numa_node in (None, -1) else index_of(numa_node, "numa_node", 31)
            c_options.frees, self._orders_frees = options.number_of("frees", frees), frees == "ordered"
            c_options.streams = options.number_of("streams", streams)
            c_options.replays = options.number_of("replays", "concurrent" if concurrent_replays else "one_at_a_time")
            c_options.peers, c_options.peer_count = device_array(peers, "peers")
            options.give(c_options, mode=mode, moves=moves, grants=grants, limit=limit, budget=budget,
                         alignment=alignment, segment=segment, granularity=granularity,
                         release_threshold=release_threshold, deadline=deadline_ms)
            _set_functions(c_options, all_gather, on_lost_rank)
        self._create(c_options)
        self._reserve_at_once(at_once)

    _finalizer: Any

    def _telling(self, symmetric_across: Communicator, all_gather: Any) -> contextlib.AbstractContextManager[None]:
        return telling([symmetric_across], all_gather)

    def _create(self, c_options: Any) -> None:
        make([self], [c_options])

    def _learn(self, mode: Optional[str] = None) -> None:
        """Learns what COMMPOOL_CONF has set and the program has not."""
        words = {setting.key: setting.value for setting in self.config()}
        self.backing, self.mode = words["backing"], mode or words["mode"]

    @classmethod
    def default(cls, device: Device = 0) -> Pool:
        """The pool that serves a device's allocations outside of every scope: the library's own, which stays.

        Raises:
          InvalidArgument: there is no such device.
        """
        return _default(cls, device_number(device))  # type: ignore[arg-type,unused-ignore]  # a class is hashable

    # Space.

    def _members(self) -> Sequence[Pool]:
        return (self,)

    def __exit__(self, kind: Optional[type[BaseException]], *error: Any) -> None:
        if kind is None and not self.closed and self.stats().allocated_blocks.total == 0:
            _say_that_nothing_was_routed()
        super().__exit__(kind, *error)

    def reclaim(self) -> int:
        """Lets deferred frees take effect that every rank has made; returns the bytes.

        Raises:
          Disagreement: the ranks' calls differ.
        """
        return self._counted(library.pools_reclaim)[0]

    def trim(self, keep: Size = 0) -> int:
        """Gives free segments back to the driver until at most `keep` stay reserved; returns the bytes.

        Raises:
          FailedPrecondition: a capture is open, or of a symmetric pool a graph that captured with it is alive.
          DeadlineExceeded: the device is busy for longer than deadline_ms: nothing was given back.
        """
        return self._trimmed(keep)[0]

    def destroy(self) -> None:
        """Ends the handle, on this rank alone; segments live until their last block is freed.

        Raises:
          InvalidArgument: it is a default pool.
        """
        if self._finalizer.alive:
            library.pool_destroy(self.handle)
            self._finalizer.detach()

    # Blocks.

    def __contains__(self, tensor: Optional[Pointer]) -> bool:
        """Whether it lies in a live block of this pool; None does not."""
        if tensor is None:
            return False
        found = blocks.block_of(tensor)
        return found is not None and found.pool == self.handle

    def empty(self, shape: Union[int, tuple[int, ...]], dtype: Any = "float32", *, stream: Stream = None) -> Array:
        """An array of this pool, whatever scopes are open: see `commpool.empty`.

        Raises:
          OutOfMemory: as `allocate`.
        """
        return made_in(self, shape, dtype, stream)

    def allocate(self, size: Size, stream: Stream = None, *, alignment: Size = 1) -> blocks.Buffer:
        """Allocates from this pool, whatever scopes are open.

        Args:
          size: in bytes, or as text: "4MiB".
          stream: the block may be used on it at once, on others after work there was ordered behind it.
          alignment: of the address, a power of two up to 2 MiB; above 512 it costs as much of the pool.

        Raises:
          Exhausted: a symmetric pool is full; the message says how much to reserve.
          OutOfMemory: another pool is at its limit, or the device is full; the message says who holds what.
          InvalidArgument: `size` is 0, or no size.
        """
        return blocks.allocated(lambda _: blocks.of_pool(self.handle), size, alignment, stream)

    def functions(self) -> PlainFunctions:
        """A pair of C functions that allocates from this pool, whatever scopes are open.

        Raises:
          OutOfMemory: 256 pools that are alive have such a pair.
        """
        return PlainFunctions(*library.pool_functions(self.handle))

    # What is kept while the pool sleeps.

    def kept(self, tensor: Pointer) -> Kept:
        """What is kept of a tensor of the pool, for NumPy and DLPack on the CPU, without a copy: see Kept.

        Args:
          tensor: a contiguous one, an Array, or a Buffer.

        Raises:
          NotFound: it was not kept, or was freed.
          FailedPrecondition: the pool is awake and has retained nothing; or a file was changed.
        """
        return Kept(self, tensor)

    # Peers.

    def grant(self, devices: Union[Device, Iterable[Device]]) -> None:
        """Lets other devices of this process access the pool's segments as `grants` says, those to come included.

        Raises:
          NotSupported: a device cannot reach the pool's; none is granted then.
        """
        library.pool_set_access(self.handle, *device_array(devices, "devices"), options.number_of("access", "granted"))

    def revoke(self, devices: Union[Device, Iterable[Device]]) -> None:
        """Takes it back.

        Raises:
          FailedPrecondition: the backing is "nccl" or "cuda", whose grants last.
          DeadlineExceeded: a device is busy for longer than deadline_ms.
        """
        library.pool_set_access(self.handle, *device_array(devices, "devices"), options.number_of("access", "revoked"))

    def access_of(self, device: Device) -> AccessWord:
        """What a device, or "cpu", may do with the memory; of "cuda" pools, as far as they granted it.

        Raises:
          InvalidArgument: it is no CUDA device, nor "cpu".
        """
        return access_in(self.config(), device)

    # Registration.

    def register_with(self, communicator: Communicator) -> None:
        """Registers the segments, those to come included; None on ranks that the communicator does not have.

        Raises:
          Disagreement: a rank passes None or another communicator; nothing is registered.
          NotSupported: NCCL makes no window there.
        """
        self._collective(library.pools_register_with, communicators=[communicator])

    def register_pending(self) -> int:
        """Registers segments that a fixed pool has grown since; returns how many, over all communicators.

        Raises:
          CommunicatorError: NCCL refused one.
        """
        return int(library.pool_register_pending(self.handle))

    def deregister(self, communicator: Communicator) -> None:
        """Ends the registrations with a communicator, before it is destroyed.

        Raises:
          Disagreement: a rank passes None or another communicator; nothing is done.
          FailedPrecondition: a graph that captured with the pool is alive.
        """
        self._collective(library.pools_deregister, communicators=[communicator])

    def abandon(self, communicator: Communicator, *, alive: bool = True) -> None:
        """After a loss, before the communicator is aborted: ends this rank's registrations, without any other rank.

        `alive=False` is for a communicator that was aborted before: NCCL cannot be asked about it.

        Raises:
          DeadlineExceeded: the device is busy for longer than deadline_ms: call it again.
        """
        library.pool_abandon(self.handle, communicator_handle(communicator, self.device),
                             options.number_of("life", "alive" if alive else "ended"))

    def rehome(self, communicator: Communicator) -> None:
        """Moves a symmetric pool to another home: after a loss, or when ranks join.

        Raises:
          FailedPrecondition: blocks, graphs or registrations are left; the message counts them.
        """
        self._collective(library.pools_rehome, communicators=[communicator])

    def lost_rank(self) -> Optional[int]:
        """The first rank of home that is known to be lost; None where there is none. Takes some nanoseconds in C."""
        rank = int(library.pool_lost_rank(self.handle))
        return rank if rank >= 0 else None

    def window_of(self, pointer: Pointer, communicator: Communicator) -> blocks.Window:
        """The window that holds a pointer, and its offset there: see `commpool.window_of`.

        Raises:
          NotFound: there is none.
        """
        return blocks.window_of(pointer, communicator_handle(communicator, self.device))

    def peers_of(self, pointer: Pointer) -> blocks.Peers:
        """Where a pointer is on each rank, for kernels: valid in graphs, and again where the pool wakes after a sleep.

        Raises:
          NotFound: no live block is there.
          FailedPrecondition: its segment is not mapped: `map_peers` comes first, on every rank.
        """
        found = _abi.CPeers()
        library.peers_of(pointer_of(pointer), ctypes.byref(found))
        return blocks.Peers(found.first or 0, found.stride_bytes, found.ranks)

    def nvls_eligible(self, pointer: Pointer, size: Size, communicator: Communicator) -> blocks.Eligibility:
        """Whether NCCL can use NVLink multicast there: see `commpool.nvls_eligible`.

        Raises:
          NotFound: the pointer is in no pool's memory.
        """
        return blocks.nvls_eligible(pointer, size, communicator_handle(communicator, self.device))

    def record(self, directory: Union[str, os.PathLike[str]], *, limit: Optional[Size] = None,
               stacks: StacksWord = "none") -> Recording:
        """Records what happens in this pool, as `commpool.record` does for all.

        Raises:
          FailedPrecondition: a recording of this process is under way.
          InvalidArgument: the path is no directory, or the limit is below 1 MiB.
          OutOfMemory: the disk is full.
        """
        return record(directory, limit=limit, stacks=stacks, pool=self.handle)


for _part in (Together, Sharer, Registering, Inspected):  # Python's own errors say Pool.sleep(), not Together.sleep()
    for _name, _method in vars(_part).items():
        if inspect.isfunction(_method):
            _method.__qualname__ = f"Pool.{_name}"


@functools.lru_cache(maxsize=None)  # one object of each, which stays too
def _default(kind: type[Pool], device: int) -> Pool:
    pool = kind.__new__(kind)
    pool.name, pool.device, pool.tag = "default", device, ""
    pool.handle = library.default_pool(device)
    living[pool.handle] = pool
    pool._finalizer = weakref.finalize(pool, int)
    pool._learn()
    return pool


def pools() -> list[Pool]:
    """The pools that this process has made and not closed, in that order; default pools too, once asked for."""
    return [pool for pool in living_pools() if not pool.closed]


@functools.lru_cache(maxsize=None)  # once
def _say_that_nothing_was_routed() -> None:
    warnings.warn("a pool ended that has served nothing: `with pool` closes it at the end and routes nothing. For that "
                  "open `with commpool.use_pool(pool):` in it", RuntimeWarning, stacklevel=3)


def _set_functions(c_options: Any, all_gather: Any, on_lost_rank: Any) -> None:
    if all_gather is not None:
        if not isinstance(all_gather, agreement.Agreement):
            raise InvalidArgument(f"all_gather {all_gather!r} is no commpool.Agreement(function, ranks)")
        c_options.all_gather = all_gather.as_c()
    if on_lost_rank is not None:
        if not callable(on_lost_rank):
            raise InvalidArgument(f"on_lost_rank {on_lost_rank!r} is no function")
        c_options.on_lost_rank = agreement.on_lost_rank(on_lost_rank)


def telling(communicators: Sequence[Communicator],
            all_gather: Any = None) -> contextlib.AbstractContextManager[None]:
    """Wraps the checks of options for symmetric pools. If a check fails, the other ranks hear the reason in the call
    that makes their pools.
    """
    return refusing(lambda error: make([], [_refusal(communicator, all_gather, error)
                                            for communicator in communicators]))


def _refusal(communicator: Communicator, all_gather: Any, why: Exception) -> Any:
    """Options that the library refuses with a reason, on all ranks."""
    refused = _abi.CPoolOptions()
    refused.name, refused.given = str(why).encode("utf-8", "replace"), _REFUSED
    refused.symmetric_across = communicator_handle(communicator)
    if not refused.symmetric_across:
        raise why  # no other rank waits
    if isinstance(all_gather, agreement.Agreement):
        refused.all_gather = all_gather.as_c()
    return refused


def checked(pool: Pool, taker: str) -> Pool:
    """Checks what a function got as its pool.

    Raises:
      InvalidArgument: it is not a pool.
    """
    if not isinstance(pool, Pool):
        raise InvalidArgument(f"{taker} takes a commpool.Pool, not {pool!r}")
    return pool


def make(pools: Sequence[Pool], all_options: Sequence[Any]) -> None:
    """Makes pools from the C ABI's options, in one call. Then each object has its handle."""
    handles = (ctypes.c_uint64 * len(all_options))()
    given = (_abi.CPoolOptions * len(all_options))(*all_options)
    library.pools_create(given, len(all_options), handles)
    for pool, c_options, handle in zip(pools, all_options, handles):
        pool.handle = handle
        living[handle] = pool
        pool._finalizer = weakref.finalize(pool, library.commpool_pool_destroy, handle)
        pool._learn("symmetric" if c_options.symmetric_across else None)
