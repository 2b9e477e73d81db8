"""DLPack's structs, and capsules that keep an array alive until their consumer is done."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._library import for_ever

CUDA = 2  # kDLCUDA

VERSION = (1, 0)


class DLDevice(ctypes.Structure):
    """DLDevice"""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    """DLDataType"""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    """DLTensor"""

    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("dtype", DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    """What consumers before DLPack 1.0 take."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", Deleter)]


class DLManagedTensorVersioned(ctypes.Structure):
    """What consumers since then take."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


_NAMES = {DLManagedTensor: b"dltensor", DLManagedTensorVersioned: b"dltensor_versioned"}

# Structs that consumers hold, by address, with what they keep alive and what is done when they are let go.
_held: dict[int, tuple[Any, Callable[[], object]]] = {}

_python = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose functions others give types of their own
_new_capsule = _python.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = _python.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_get_pointer = _python.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


def _make_deleters() -> tuple[Any, Any]:
    """That of the struct and that of the capsule. They use no name of the module: those go before the last capsules."""
    held, names, is_valid, get_pointer = _held, tuple(_NAMES.values()), _is_valid, _get_pointer

    def delete(managed: int) -> None:
        _, done = held.pop(managed)
        done()

    def destroy_capsule(capsule: int) -> None:
        for name in names:
            if is_valid(capsule, name):  # a consumer that took the struct renames the capsule
                delete(get_pointer(capsule, name))

    return for_ever(Deleter(delete)), for_ever(Deleter(destroy_capsule))


_deleter, _destructor = _make_deleters()


def capsule(tensor: DLTensor, versioned: bool, kept: Any, done: Callable[[], object]) -> Any:
    """A capsule with the tensor. `kept` lives until the consumer lets go, which calls `done`."""
    managed: Any = DLManagedTensorVersioned() if versioned else DLManagedTensor()
    managed.dl_tensor, managed.deleter = tensor, _deleter
    if versioned:
        managed.major, managed.minor = VERSION
    address = ctypes.addressof(managed)
    _held[address] = ((managed, tensor, kept), done)
    return _new_capsule(address, _NAMES[type(managed)], _destructor)
