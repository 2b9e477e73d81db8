"""Arrays and a graph that allocates, by the driver's own functions, with a report after each step."""

import ctypes

_MIB = 1 << 20
_FLOAT = 0x20
_ON_DEVICE, _RELAXED, _NON_BLOCKING = 0, 2, 1


class _Array(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR"""
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
                ("format", ctypes.c_int), ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


_driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(_driver, name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name} failed: {result}")


def make(name, *arguments):
    """The handle that the function writes to its first argument."""
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle


def report(reason):
    ctypes.CDLL(None).commpool_audit_report(reason.encode())


def make_arrays():
    """512 MiB in one, 341 MiB in the levels of another, and many that share granules."""
    body = make("cuArray3DCreate_v2", ctypes.byref(_Array(8192, 4096, 4, _FLOAT, 1, 0)))
    levels = make("cuMipmappedArrayCreate", ctypes.byref(_Array(4096, 4096, 0, _FLOAT, 4, 0)), 13)
    small = [make("cuArray3DCreate_v2", ctypes.byref(_Array(64, 64, 0, _FLOAT, 1, 0))) for _ in range(500)]
    report("step arrays")
    call("cuMipmappedArrayDestroy", levels)
    for array in [body, *small]:
        call("cuArrayDestroy", array)
    report("step arrays gone")


def run_a_graph():
    """A capture makes the graph: it allocates 256 MiB, writes there, and frees it."""
    stream = make("cuStreamCreate", _NON_BLOCKING)
    call("cuStreamBeginCapture_v2", stream, _RELAXED)
    pointer = ctypes.c_uint64()
    call("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(256 * _MIB), stream)
    call("cuMemsetD8Async", pointer, ctypes.c_ubyte(7), ctypes.c_size_t(256 * _MIB), stream)
    call("cuMemFreeAsync", pointer, stream)
    graph = ctypes.c_void_p()
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    executable = make("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    call("cuGraphLaunch", executable, stream)
    call("cuStreamSynchronize", stream)
    report("step graph")
    call("cuGraphExecDestroy", executable)
    call("cuGraphDestroy", graph)
    call("cuDeviceGraphMemTrim", _ON_DEVICE)
    report("step graph gone")


def main():
    call("cuInit", 0)
    call("cuCtxSetCurrent", make("cuDevicePrimaryCtxRetain", _ON_DEVICE))
    report("step context")
    make_arrays()
    run_a_graph()


if __name__ == "__main__":
    main()
