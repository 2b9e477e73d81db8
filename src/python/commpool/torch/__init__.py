"""commpool for PyTorch: all of `commpool`, and scopes and pools that hold torch's tensors, backward's too.

    import commpool.torch as commpool

    pool = commpool.Pool("gradients")
    with commpool.use_pool(pool):
        loss(model(x), y).backward()
    print(torch.cuda.memory_summary())

The pages in share/doc/commpool/src/python/commpool/torch (of a wheel, below the package) say what to use when, what to
mind, and what each torch allows.
"""

# Each by its name, for type checkers: a wildcard import would hide that four names are replaced.
from commpool import (Agreement, Array, Block, Budget, BudgetUse, Buffer, CommpoolError, CommunicatorError,
                      CommunicatorMemory, Configuration, Counter, DeadlineExceeded, Disagreement, DriverCall,
                      DriverError, Eligibility, Exhausted, FailedPrecondition, InternalError, InvalidArgument, Kept,
                      MemoryHolder, NotFound, NotSupported, NvlsEligibility, OutOfMemory, Peers, PlainFunctions,
                      PoolGroup, RankMissing, Recording, RemoteFailure, Segment, Setting, SharedStatistics, Snapshot,
                      Statistics, StatusCode, UserBacking, Window, add_communicator_source, allocate_in_scope, block_of,
                      capture, communicator_memory, config, current_pool, driver_calls, driver_description, free,
                      initialize, library_version, nvls_eligible, parse_size, pools, promise_stream,
                      record, record_stream, release_stream, set_device_limit, set_headroom, sleep, sleep_communicator,
                      wake, wake_communicator, window_of)
from commpool import __version__ as __version__

from . import _errors as _errors
from ._advice import Advice
from ._advise import advise
from ._allocate import allocate, empty
from ._ddp import ddp, ddp_release
from ._fallback import fallbacks
from ._fsdp import all_gather_ring, fsdp, fsdp_release
from ._group import group_memory, sleep_group, wake_group
from ._install import install, installed, uninstall
from ._mem_pool import mem_pool
from ._pool import Pool
from ._scope import use_pool
from ._shared import SharedBlock, SharedPool
from ._tensor_parallel import tp

__all__ = [
    "Advice", "Agreement", "Array", "Block", "Budget", "BudgetUse", "Buffer", "CommpoolError", "CommunicatorError",
    "CommunicatorMemory", "Configuration", "Counter", "DeadlineExceeded", "Disagreement", "DriverCall", "DriverError",
    "Eligibility", "Exhausted", "FailedPrecondition", "InternalError", "InvalidArgument", "Kept", "MemoryHolder",
    "NotFound", "NotSupported", "NvlsEligibility", "OutOfMemory", "Peers", "PlainFunctions", "Pool", "PoolGroup",
    "RankMissing", "Recording", "RemoteFailure", "Segment", "Setting", "SharedBlock", "SharedPool", "SharedStatistics",
    "Snapshot", "Statistics", "StatusCode", "UserBacking", "Window", "add_communicator_source", "advise",
    "all_gather_ring", "allocate", "allocate_in_scope", "block_of", "capture", "communicator_memory", "config",
    "current_pool", "ddp", "ddp_release", "driver_calls", "driver_description", "empty", "fallbacks", "free", "fsdp",
    "fsdp_release", "group_memory", "initialize", "install", "installed", "library_version",
    "mem_pool", "nvls_eligible", "parse_size", "pools", "promise_stream", "record", "record_stream", "release_stream",
    "set_device_limit", "set_headroom", "sleep", "sleep_communicator", "sleep_group", "tp", "uninstall", "use_pool",
    "wake", "wake_communicator", "wake_group", "window_of"
]
