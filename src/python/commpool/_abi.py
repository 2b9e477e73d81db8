"""The C ABI as ctypes knows it: enumerations, structs and functions of commpool.h.

A test reads commpool.h and holds every name, size and offset of this file against it.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .figures import Block, Counter, Statistics

# The version of commpool.h that this file was written from: the library is of the same minor version.
MAJOR, MINOR, PATCH = 0, 4, 0
VERSION = MAJOR * 10000 + MINOR * 100 + PATCH

CURRENT_DEVICE = -1
MOST_BYTES = 2**64 - 1


# Enumerations, by the words that options take: {"commpool_backing": {"vmm": 0, ...}}.
WORDS: dict[str, dict[str, int]] = {
    "commpool_driver": {"cuda": 0, "emulated": 1, "auto": 2},
    "commpool_backing": {"vmm": 0, "cuda": 1, "nccl": 2, "user": 3},
    "commpool_location": {"device": 0, "host_numa": 1},
    "commpool_frees": {"deferred": 0, "ordered": 1},
    "commpool_mode": {"fixed": 0, "expandable": 1},
    "commpool_moves": {"eager": 0, "under_pressure": 1},
    "commpool_option": {"backing": 1, "mode": 2, "moves": 4, "deadline": 8, "alignment": 16, "segment": 32,
                        "granularity": 64, "release_threshold": 128, "limit": 256},
    "commpool_keep": {"discard": 0, "host": 1},
    "commpool_graphs": {"refused": 0, "no_collectives": 1},
    "commpool_filter": {"thread": 0, "stream": 1, "process": 2},
    "commpool_exhaustion": {"error": 0, "next_scope": 1},
    "commpool_block_state": {"live": 0, "free": 1, "pending": 2, "cached": 3, "unmapped": 4},
}

_word = ctypes.c_int
_size = ctypes.c_size_t
_u64 = ctypes.c_uint64
_pointer = ctypes.c_void_p
_device = ctypes.c_int

UserAllocate = ctypes.CFUNCTYPE(_pointer, ctypes.c_ssize_t, _device, _pointer, _pointer)
UserFree = ctypes.CFUNCTYPE(None, _pointer, ctypes.c_ssize_t, _device, _pointer, _pointer)
AllGather = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _pointer, _size, _pointer)
OnLostRank = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, _pointer)
CachedBytes = ctypes.CFUNCTYPE(_u64, _device, _pointer)
Release = ctypes.CFUNCTYPE(_u64, _device, _u64, _pointer)


class CPoolOptions(ctypes.Structure):
    """commpool_pool_options"""

    _fields_ = [("struct_bytes", _size), ("name", ctypes.c_char_p), ("device", _device), ("backing", _word),
                ("location", _word), ("numa_node", ctypes.c_int), ("symmetric_across", _pointer),
                ("all_gather", AllGather), ("all_gather_context", _pointer), ("frees", _word), ("mode", _word),
                ("moves", _word), ("deadline_ms", _u64), ("peers", ctypes.POINTER(ctypes.c_int)),
                ("peer_count", _size), ("alignment_bytes", _u64), ("segment_bytes", _u64),
                ("granularity_bytes", _u64), ("release_threshold_bytes", _u64), ("limit_bytes", _u64),
                ("user_allocate", UserAllocate), ("user_free", UserFree), ("user_context", _pointer),
                ("on_lost_rank", OnLostRank), ("lost_rank_context", _pointer), ("given", _u64),
                ("tag", ctypes.c_char_p)]


class CScopeOptions(ctypes.Structure):
    """commpool_scope_options"""

    _fields_ = [("struct_bytes", _size), ("filter", _word), ("exhaustion", _word), ("stream", _pointer),
                ("min_bytes", _u64), ("max_bytes", _u64)]


class CHolderOptions(ctypes.Structure):
    """commpool_holder_options"""

    _fields_ = [("struct_bytes", _size), ("name", ctypes.c_char_p), ("cached_bytes", CachedBytes),
                ("release", Release), ("context", _pointer)]


class CCounter(ctypes.Structure):
    """commpool_counter"""

    _fields_ = [(name, _u64) for name in Counter._fields]


class CStatistics(ctypes.Structure):
    """commpool_statistics: of the figures that Statistics lists."""

    _fields_ = [("struct_bytes", _size), *((name, CCounter if words == "Counter" else _u64)
                                           for name, words in Statistics.__annotations__.items())]

    def value(self) -> Statistics:
        """The figures."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in Statistics.__annotations__}
        for name, of in figures.items():
            figures[name] = Counter(of.current, of.peak, of.total) if isinstance(of, CCounter) else of
        return Statistics(**figures)


_OF_BLOCKS: dict[str, Any] = {"pointer": _pointer, "device": _device, "state": _word}


class CBlock(ctypes.Structure):
    """commpool_block"""

    _fields_ = [(name, _OF_BLOCKS.get(name, _u64)) for name in Block._fields]

    def value(self) -> Block:
        """Its fields, the state as a word."""
        found = Block._make(getattr(self, name) or 0 for name in Block._fields)
        return found._replace(state=_STATES.get(self.state, str(self.state)))


_STATES = {number: word for word, number in WORDS["commpool_block_state"].items()}


class CSetting(ctypes.Structure):
    """commpool_setting"""

    _fields_ = [("pool", ctypes.c_char_p), ("key", ctypes.c_char_p), ("value", ctypes.c_char_p),
                ("source", ctypes.c_char_p)]


class CDriverCall(ctypes.Structure):
    """commpool_driver_call"""

    _fields_ = [("name", ctypes.c_char_p), ("count", _u64), ("microseconds", ctypes.c_double)]


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "commpool_pool_options": CPoolOptions,
    "commpool_scope_options": CScopeOptions,
    "commpool_holder_options": CHolderOptions,
    "commpool_counter": CCounter,
    "commpool_statistics": CStatistics,
    "commpool_block": CBlock,
    "commpool_setting": CSetting,
    "commpool_driver_call": CDriverCall,
}


def sized(struct: Any) -> Any:
    """Sets the struct's size, as its init function does, and returns it."""
    struct.struct_bytes = ctypes.sizeof(struct)
    return struct


_many = ctypes.POINTER(_u64)
_out = ctypes.POINTER(_pointer)
_text = ctypes.c_char_p
_pools = [_many, _size]
_joined = [_many, _out, _size]
_status = ctypes.c_int

# Functions of some nanoseconds, which neither wait nor call back: called with the GIL held.
QUICK: dict[str, tuple[Any, list[Any]]] = {
    "commpool_last_error": (_text, []),
    "commpool_version": (ctypes.c_int, []),
    "commpool_driver_description": (_text, []),
    "commpool_record_stream": (_status, [_pointer, _pointer]),
    "commpool_scope_begin": (_status, [_u64, ctypes.POINTER(CScopeOptions), _many]),
    "commpool_scope_end": (_status, [_u64]),
    "commpool_pool_lost_rank": (_status, [_u64, ctypes.POINTER(ctypes.c_int)]),
    "commpool_window_of": (_status, [_pointer, _pointer, _out, _many]),
    "commpool_block_of": (_status, [_pointer, ctypes.POINTER(CBlock), _size]),
}

# All others may wait for ranks, the device or a lock whose holder runs a Python function: called without the GIL.
WAITING: dict[str, tuple[Any, list[Any]]] = {
    "commpool_initialize": (_status, [_word]),
    "commpool_pools_create": (_status, [ctypes.POINTER(CPoolOptions), _size, _many]),
    "commpool_pool_destroy": (_status, [_u64]),
    "commpool_pools_close": (_status, _pools),
    "commpool_default_pool": (_status, [_device, _many]),
    "commpool_pools_reserve": (_status, [*_pools, _u64]),
    "commpool_pools_reclaim": (_status, [*_pools, _many]),
    "commpool_pools_trim": (_status, [*_pools, _u64, _many]),
    "commpool_pools_verify": (_status, _pools),
    "commpool_pools_sleep": (_status, [*_pools, _word, _word]),
    "commpool_pools_wake": (_status, _pools),
    "commpool_sleep": (_status, [_text, _word, _word]),
    "commpool_wake": (_status, [_text]),
    "commpool_allocate": (_status, [_device, _u64, _pointer, _out]),
    "commpool_pool_allocate": (_status, [_u64, _u64, _pointer, _out]),
    "commpool_allocate_in_scope": (_status, [_device, _u64, _pointer, _out]),
    "commpool_free": (_status, [_pointer]),
    "commpool_release_stream": (_status, [_pointer]),
    "commpool_pool_functions": (_status, [_u64, _out, _out]),
    "commpool_capture_begin": (_status, [_u64, _pointer, _many]),
    "commpool_capture_end": (_status, [_u64]),
    "commpool_set_device_limit": (_status, [_device, _u64]),
    "commpool_add_holder": (_status, [ctypes.POINTER(CHolderOptions), _many]),
    "commpool_remove_holder": (_status, [_u64]),
    "commpool_pool_grant": (_status, [_u64, ctypes.POINTER(ctypes.c_int), _size]),
    "commpool_pool_revoke": (_status, [_u64, ctypes.POINTER(ctypes.c_int), _size]),
    "commpool_pools_register_with": (_status, _joined),
    "commpool_pool_register_pending": (_status, [_u64, _many]),
    "commpool_pools_deregister": (_status, _joined),
    "commpool_pool_abandon_live": (_status, [_u64, _pointer]),
    "commpool_pool_abandon": (_status, [_u64, _pointer]),
    "commpool_pools_rehome": (_status, _joined),
    "commpool_nvls_eligible": (_status, [_pointer, _u64, _pointer, ctypes.POINTER(ctypes.c_int),
                                         ctypes.POINTER(_text)]),
    "commpool_pool_statistics": (_status, [_u64, ctypes.POINTER(CStatistics)]),
    "commpool_pool_reset_peaks": (_status, [_u64]),
    "commpool_pool_blocks": (_status, [_u64, ctypes.POINTER(CBlock), _size, _size, ctypes.POINTER(_size)]),
    "commpool_configuration": (_status, [_u64, ctypes.POINTER(CSetting), _size, _size, ctypes.POINTER(_size)]),
    "commpool_measure_driver": (_status, []),
    "commpool_driver_calls": (_status, [ctypes.POINTER(CDriverCall), _size, _size, ctypes.POINTER(_size)]),
}

