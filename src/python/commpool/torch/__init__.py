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

from ._allocate import allocate, empty
from ._fallback import fallbacks
from ._install import install, installed, uninstall
from ._mem_pool import mem_pool
from ._pool import Pool
from ._scope import use_pool  # type: ignore[assignment]

__all__ = sorted({*_all_of_commpool, "fallbacks", "install", "installed", "mem_pool", "uninstall"})
