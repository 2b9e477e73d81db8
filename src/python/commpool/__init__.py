"""Say which arrays need special memory; commpool makes it, keeps it registered, routes them to it, and gives it back.

    import commpool

    pool = commpool.Pool("activations")
    with commpool.use_pool(pool):
        array = commpool.empty((1024, 1024), "float32", device=0)
    print(pool.stats())

This package imports no framework; commpool.torch routes torch's tensors too. Any thread may call any function; after
fork() the child must not.
"""

import sys
import warnings
from typing import TYPE_CHECKING, Any

from ._abi import MAJOR, MINOR, PATCH
from ._library import fast as _fast_module
from .agreement import Agreement, RankMissing
from .arrays import Array, Kept
from .backings import UserBacking
from .blocks import (Buffer, Eligibility, NvlsEligibility, Peers, Window, allocate, allocate_in_scope, block_of, free,
                     nvls_eligible, promise_stream, record_stream, release_stream, window_of)
from .errors import (CommpoolError, CommunicatorError, DeadlineExceeded, Disagreement, DriverError, Exhausted,
                     FailedPrecondition, InternalError, InvalidArgument, NotFound, NotSupported, OutOfMemory,
                     RemoteFailure, StatusCode)
from .statistics import Block, Configuration, Counter, Segment, Setting, Snapshot, Statistics, config
from .handles import add_communicator_source
from .imports import SharedBlock, SharedPool, SharedStatistics
from .pool import PlainFunctions, Pool, pools
from .pool_group import PoolGroup
from .recordings import Recording, record
from .runtime import (Budget, BudgetUse, DriverCall, MemoryHolder, driver_calls, driver_description, initialize,
                      library_version, set_device_limit, set_headroom)
from .scopes import capture, current_pool, empty
from .sizes import parse_size
from .sleeping import (CommunicatorMemory, communicator_memory, sleep, sleep_communicator, wake, wake_communicator)

if _fast_module:
    record_stream = _fast_module.record_stream

if TYPE_CHECKING:
    from .scopes import use_pool as use_pool
else:

    def __getattr__(name: str) -> Any:
        """use_pool, at its first use: who has imported torch hears that these scopes do not catch its tensors."""
        if name != "use_pool":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .scopes import use_pool

        if "torch" in sys.modules:
            warnings.warn("commpool.use_pool does not catch torch's tensors: commpool.torch.use_pool does, and what "
                          "this one catches", RuntimeWarning, stacklevel=2)
        globals()[name] = use_pool
        return use_pool


__version__ = f"{MAJOR}.{MINOR}.{PATCH}"

__all__ = [
    "Agreement", "Array", "Block", "Budget", "BudgetUse", "Buffer", "CommpoolError", "CommunicatorError",
    "CommunicatorMemory", "Configuration", "Counter", "DeadlineExceeded", "Disagreement", "DriverCall", "DriverError",
    "Eligibility", "Exhausted", "FailedPrecondition", "InternalError", "InvalidArgument", "Kept", "MemoryHolder",
    "NotFound", "NotSupported", "NvlsEligibility", "OutOfMemory", "Peers", "PlainFunctions", "Pool", "PoolGroup",
    "RankMissing", "Recording", "RemoteFailure", "Segment", "Setting", "SharedBlock", "SharedPool", "SharedStatistics",
    "Snapshot", "Statistics", "StatusCode", "UserBacking", "Window", "add_communicator_source", "allocate",
    "allocate_in_scope", "block_of", "capture", "communicator_memory", "config", "current_pool", "driver_calls",
    "driver_description", "empty", "free", "initialize", "library_version", "nvls_eligible",
    "parse_size", "pools", "promise_stream", "record", "record_stream", "release_stream", "set_device_limit",
    "set_headroom", "sleep", "sleep_communicator", "use_pool", "wake", "wake_communicator", "window_of"
]
