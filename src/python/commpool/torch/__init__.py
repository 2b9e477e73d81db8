"""commpool for PyTorch: all of `commpool`, and scopes and pools that hold torch's tensors, backward's too.

    import commpool.torch as commpool

    pool = commpool.Pool("gradients")
    with commpool.use_pool(pool):
        loss(model(x), y).backward()
    print(torch.cuda.memory_summary())

README.md beside this file: what to use for what, what to mind, and what each version of torch allows.
"""

from commpool import *  # noqa: F401,F403  the names below replace some of them
from commpool import __all__ as _all_of_commpool
from commpool import __version__

from ._advice import Advice
from ._advise import advise
from ._allocate import allocate, empty
from ._ddp import ddp, ddp_release
from ._fallback import fallbacks
from ._fsdp import all_gather_ring, fsdp, fsdp_release
from ._install import install, installed, uninstall
from ._mem_pool import mem_pool
from ._pool import Pool
from ._scope import use_pool
from ._tensor_parallel import tp

__all__ = sorted({*_all_of_commpool, "Advice", "advise", "all_gather_ring", "ddp", "ddp_release", "fallbacks", "fsdp",
                  "fsdp_release", "install", "installed", "mem_pool", "tp", "uninstall"})
