"""DLPack's structs, and capsules that keep an array alive until their consumer is done."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from . import _capsules
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


Deleter = _capsules.Destructor


class DLManagedTensor(ctypes.Structure):
    """What consumers before DLPack 1.0 take."""

    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", Deleter)]


class DLManagedTensorVersioned(ctypes.Structure):
    """What consumers since then take."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


_NAMES = {DLManagedTensor: b"dltensor", DLManagedTensorVersioned: b"dltensor_versioned"}

# Structs that consumers hold, by address: what each keeps alive, and what to do when the consumer lets go.
_held: dict[int, tuple[Any, Callable[[], object]]] = {}


def _make_functions() -> tuple[Any, Any, Any]:
    """Makes the functions for builds without C: one lets go of a struct, one does it for a capsule. They use no name of
    the module, because names are deleted before the last capsules.
    """
    held, names, is_valid, pointer_of = _held, tuple(_NAMES.values()), _capsules.is_valid, _capsules.pointer_of

    def let_go(managed: int) -> None:
        _, done = held.pop(managed)
        done()

    def destroy(capsule: int) -> None:
        for name in names:
            if is_valid(capsule, name):  # a consumer renames the capsule when it takes the struct
                let_go(pointer_of(capsule, name))

    deleters = {kind: _capsules.in_c(Deleter, name, let_go) for kind, name in (
        (DLManagedTensor, "commpool_dlpack_delete"), (DLManagedTensorVersioned, "commpool_dlpack_delete_versioned"))}
    return for_ever(Deleter(let_go)), deleters, _capsules.in_c(Deleter, "commpool_dlpack_destroy", destroy)


_let_go, _deleters, _destructor = _make_functions()


def capsule(tensor: DLTensor, versioned: bool, kept: Any, done: Callable[[], object]) -> Any:
    """Makes a capsule with the tensor. `kept` lives until the consumer lets go; then `done` is called."""
    managed: Any = DLManagedTensorVersioned() if versioned else DLManagedTensor()
    managed.dl_tensor, managed.deleter = tensor, _deleters[type(managed)]
    managed.manager_ctx = ctypes.cast(_let_go, ctypes.c_void_p)
    if versioned:
        managed.major, managed.minor = VERSION
    address = ctypes.addressof(managed)
    _held[address] = ((managed, tensor, kept), done)
    return _capsules.new(address, _NAMES[type(managed)], _destructor)
