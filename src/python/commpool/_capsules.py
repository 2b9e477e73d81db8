"""Capsules: Python objects that call a C function of `_capsule.c` when they go, whatever Python does at that moment."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._library import FAST

Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_python = ctypes.PyDLL(None)  # not ctypes.pythonapi: others give its functions their own types
_in_c = ctypes.PyDLL(FAST)


def _of_python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_python, name)
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


# A capsule goes to these functions by its address: id(capsule).
pointer_of = _of_python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
new = _of_python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
set_context = _of_python("PyCapsule_SetContext", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def in_c(kind: Any, name: str) -> Any:
    """A function of `_capsule.c` as a ctypes function."""
    return kind((name, _in_c))
