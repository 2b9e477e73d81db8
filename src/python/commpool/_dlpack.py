"""DLPack's structs, and capsules that keep an array alive until their consumer is done."""

from __future__ import annotations

import ctypes
from typing import Any

from . import _capsules
from ._library import for_ever

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA

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


Deleter = _capsules.Destructor


class DLManagedTensor(ctypes.Structure):
    """What consumers before DLPack 1.0 take."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", Deleter)]


class DLManagedTensorVersioned(ctypes.Structure):
    """What consumers since then take."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


# For consumers before DLPack 1.0, and since then: the struct, its capsule's name, and the struct's deleter.
_UNVERSIONED = DLManagedTensor, b"dltensor", _capsules.in_c(Deleter, "commpool_dlpack_delete")
_VERSIONED = (DLManagedTensorVersioned, b"dltensor_versioned",
              _capsules.in_c(Deleter, "commpool_dlpack_delete_versioned"))
_destroy = _capsules.in_c(Deleter, "commpool_dlpack_destroy")

# Structs that consumers hold, by address: what each keeps alive.
_held: dict[int, Any] = {}


def _let_go(managed: int, held: dict[int, Any] = _held) -> None:
    """Lets go of a struct. It uses no name of the module, because names are deleted before the last capsules."""
    del held[managed]


_letting_go = for_ever(Deleter(_let_go))


def capsule(tensor: DLTensor, versioned: bool, kept: Any) -> Any:
    """Makes a capsule with the tensor. `kept` lives until the consumer lets go."""
    kind, name, deleter = _VERSIONED if versioned else _UNVERSIONED
    managed: Any = kind(dl_tensor=tensor, deleter=deleter, manager_ctx=ctypes.cast(_letting_go, ctypes.c_void_p))
    if versioned:
        managed.major, managed.minor = VERSION
    address = ctypes.addressof(managed)
    _held[address] = managed, tensor, kept
    return _capsules.new(address, name, _destroy)
