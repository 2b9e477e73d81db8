"""A hook that torch calls before it aborts a communicator, on threads of its own and at any time."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable, TypeVar

_Owner = TypeVar("_Owner")
_MOMENT, _SECONDS = 0.001, 10


def on_abort(backend: Any, owner: _Owner, act: Callable[[_Owner], None]) -> bool:
    """Calls `act(owner)` before an abort, while the owner lives. Returns False if torch's backend has no such hook.

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
