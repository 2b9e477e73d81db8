"""Capsules: Python objects that call a C function when they go, whatever Python does at that moment.

The functions are in `_capsule.c`. Where that is not built, Python functions do the work, but they can fail in two
cases: Ctrl-C at that moment, and an exception that is being raised.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._library import FAST, for_ever

Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_python = ctypes.PyDLL(None)  # not ctypes.pythonapi: others give its functions their own types


def _of_python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_python, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


# Both the capsule and its destructor know the capsule by its address: id(capsule).
is_valid = _of_python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
pointer_of = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
context_of = _of_python("PyCapsule_GetContext", ctypes.c_void_p, ctypes.c_void_p)
new = _of_python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
set_context = _of_python("PyCapsule_SetContext", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def in_c(kind: Any, name: str, otherwise: Callable[..., Any], called_by_c: bool = True) -> Any:
    """Returns a function of `_capsule.c` as a ctypes function; `otherwise` where that is not built."""
    try:
        return kind((name, ctypes.PyDLL(FAST)))
    except (OSError, AttributeError):
        return for_ever(kind(otherwise)) if called_by_c else otherwise


def owner(block: int, release: int, destroy: Any) -> Any:
    """Makes a capsule that owns a block. A C function, given by its address, frees the block."""
    made = new(block, None, destroy)
    set_context(id(made), release)
    return made
