"""One side of transfers by UCX itself, by its functions in C: for the part `registrars`."""

import ctypes
import glob
import os
import time

_MEMORY_OF_OTHERS = 2  # UCX's feature: reads and writes in another process's memory
_WAITS, _HANDLE_IS_GIVEN = 1, 1 << 8  # a status; a bit of the request's mask


class _Parameters(ctypes.Structure):
    """Those of a context, a worker and an endpoint all begin with a mask and one field that is used here."""

    _fields_ = [("field_mask", ctypes.c_uint64), ("field", ctypes.c_uint64), ("later", ctypes.c_uint64 * 32)]


class _Request(ctypes.Structure):
    _fields_ = [("mask", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("unused", ctypes.c_void_p * 5),
                ("memory_type", ctypes.c_int), ("received", ctypes.c_void_p), ("handle", ctypes.c_void_p),
                ("later", ctypes.c_uint64 * 8)]


class UcxSide:
    """A context and a worker. One side reads; the other one makes progress meanwhile."""

    def __init__(self, package):
        """Takes the UCX beside NIXL's package, or else the system's."""
        beside = os.path.join(os.path.dirname(package), "nixl_cu*.libs", "libucp-*.so*")
        self.path = next(iter(glob.glob(beside)), "libucp.so.0")
        self._ucp = ctypes.CDLL(self.path)
        self._ucp.ucp_get_nbx.restype = ctypes.c_void_p
        self.context, self._worker, self._endpoint = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("ucp_init_version", 1, 0, ctypes.byref(_Parameters(1, _MEMORY_OF_OTHERS)), None,
                   ctypes.byref(self.context))
        self._call("ucp_worker_create", self.context, ctypes.byref(_Parameters(1, 0)), ctypes.byref(self._worker))

    def _call(self, name, *arguments):
        call = getattr(self._ucp, name)
        call.restype = ctypes.c_int8
        status = call(*arguments)
        if status < 0:
            raise RuntimeError(f"{name}: {status}")
        return status

    def _bytes(self, name, *arguments):
        """What a call returns as a pointer and a length."""
        pointer, length = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(name, *arguments, ctypes.byref(pointer), ctypes.byref(length))
        return ctypes.string_at(pointer, length.value)

    def address(self):
        return self._bytes("ucp_worker_get_address", self._worker)

    def key_of(self, handle):
        """What the other process needs to read a segment, by its `ucp_mem_h`."""
        return self._bytes("ucp_rkey_pack", self.context, ctypes.c_void_p(handle))

    def progress(self):
        self._ucp.ucp_worker_progress(self._worker)

    def connect(self, address):
        text = ctypes.create_string_buffer(address, len(address))
        parameters = _Parameters(1, ctypes.addressof(text))
        self._call("ucp_ep_create", self._worker, ctypes.byref(parameters), ctypes.byref(self._endpoint))

    def unpacked(self, key):
        unpacked = ctypes.c_void_p()
        self._call("ucp_ep_rkey_unpack", self._endpoint, key, ctypes.byref(unpacked))
        return unpacked

    def read(self, mine, handle, theirs, key, nbytes):
        """Seconds of one transfer into registered memory."""
        request = _Request(mask=_HANDLE_IS_GIVEN, handle=handle)
        start = time.perf_counter()
        going = self._ucp.ucp_get_nbx(self._endpoint, ctypes.c_void_p(mine), ctypes.c_size_t(nbytes),
                                      ctypes.c_uint64(theirs), key, ctypes.byref(request)) or 0
        if going >= 1 << 63:
            raise RuntimeError(f"ucp_get_nbx: {going - (1 << 64)}")
        if going:
            while self._call("ucp_request_check_status", ctypes.c_void_p(going)) == _WAITS:
                self.progress()
        seconds = time.perf_counter() - start
        if going:
            self._ucp.ucp_request_free(ctypes.c_void_p(going))
        return seconds
