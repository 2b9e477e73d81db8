"""What torch calls before it aborts a communicator: on threads of its own, at any time."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable, TypeVar

_Owner = TypeVar("_Owner")
_MOMENT, _SECONDS = 0.001, 10


def on_abort(backend: Any, owner: _Owner, act: Callable[[_Owner], None]) -> bool:
    """Calls `act(owner)` then, while the owner lives, where torch's backend tells of an abort; returns whether it does.

    Before 3.14 Python ends a thread that asks for its lock while the interpreter ends. One of torch's has C++ on its
    stack, and the whole process ends with it: so torch has no hook any more by then.
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
    weakref.finalize(owner, _unregister, backend, number, dropped, last)  # at the interpreter's end at the latest
    return True


def _unregister(backend: Any, number: int, dropped: threading.Event, _last: Any) -> None:
    # torch copies its hooks under a lock that it takes here too, and each copy takes Python's, which this thread holds:
    # a thread that is copying now gets it before.
    time.sleep(_MOMENT)
    backend.unregister_abort_hook(number)
    if threading.current_thread() is threading.main_thread():
        dropped.wait(_SECONDS)  # until the copies are gone that a thread of torch's calls now
