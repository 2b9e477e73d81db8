"""Functions of Python that C may call as late as the end of the process."""

from __future__ import annotations

import ctypes
from typing import TypeVar

_Function = TypeVar("_Function")

_keep = ctypes.PyDLL(None).Py_IncRef
_keep.argtypes, _keep.restype = [ctypes.py_object], None


def for_ever(function: _Function) -> _Function:
    """Keeps a function of ctypes, and what it refers to, and returns it.

    A name in a module would not do: those go, in no order that one could rely on, while the interpreter ends, and
    blocks that are freed after them would call what is gone.
    """
    _keep(function)
    return function
