"""The one C function of CuPy's module with this name that the adapter uses."""

import ctypes

import cupy

SIGNATURE = b"intptr_t (void)"
_current = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: cupy.STREAM[0])

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
__pyx_capi__ = {"get_current_stream_ptr": _new(ctypes.cast(_current, ctypes.c_void_p), SIGNATURE, None)}
