"""Capsules: objects of Python's that call a function of C when they go, and so whatever Python is doing then.

The functions are those of `_capsule.c`. Where that is not built Python's own do the work, but for two cases: Ctrl-C
just then, and an exception that is on its way.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._library import FAST, for_ever

Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_python = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose functions others give types of their own


def _of_python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_python, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


# A capsule is told by its address, as its destructor is: id(capsule).
is_valid = _of_python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
pointer_of = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
context_of = _of_python("PyCapsule_GetContext", ctypes.c_void_p, ctypes.c_void_p)
new = _of_python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
set_context = _of_python("PyCapsule_SetContext", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def in_c(kind: Any, name: str, otherwise: Callable[..., Any], called_by_c: bool = True) -> Any:
    """A function of `_capsule.c` as one of a kind of ctypes'; `otherwise` where that is not built."""
    try:
        return kind((name, ctypes.PyDLL(FAST)))
    except (OSError, AttributeError):
        return for_ever(kind(otherwise)) if called_by_c else otherwise


def owner(block: int, release: int, destroy: Any) -> Any:
    """A capsule of a block that a function of C, by its address, frees."""
    made = new(block, None, destroy)
    set_context(id(made), release)
    return made
