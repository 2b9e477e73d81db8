"""Runs the package on the emulator. Every test here imports it before commpool."""

import ctypes
import os
import sys
import threading

REPOSITORY = os.getcwd()  # the root of Bazel's runfiles
PACKAGE = os.path.join(REPOSITORY, "src/python")
LIBRARY = os.path.join(REPOSITORY, "src/library/c_api/libcommpool.so.0")

os.environ["COMMPOOL_LIBRARY"] = LIBRARY
os.environ["COMMPOOL_DRIVER"] = "emulated"
sys.path.insert(0, PACKAGE)

MIB = 1 << 20


def check(result):
    if result != 0:
        raise RuntimeError(f"a call of CUDA's or NCCL's ended with {result}")


def cuda():
    """The emulated driver. commpool has opened it before."""
    return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def nccl():
    return ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_NOW)


def reports():
    """The broken rules so far that hardware would leave undefined, such as races."""
    text = ctypes.create_string_buffer(1 << 16)
    count = cuda().commpoolEmulatorReports(text, ctypes.c_size_t(len(text)))
    return count, text.value.decode()


def make_current(device):
    """Makes the device's primary context current on this thread."""
    import commpool

    commpool.initialize("emulated")
    context = ctypes.c_void_p()
    check(cuda().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda().cuCtxSetCurrent(context))


class Stream:
    """A stream of the emulated driver, with the interface of other libraries' streams."""

    def __init__(self, device=0, flags=1):  # CU_STREAM_NON_BLOCKING
        make_current(device)
        handle = ctypes.c_void_p()
        check(cuda().cuStreamCreate(ctypes.byref(handle), flags))
        self.handle = handle.value

    def __cuda_stream__(self):
        return 0, self.handle

    def synchronize(self):
        check(cuda().cuStreamSynchronize(ctypes.c_void_p(self.handle)))

    def begin_capture(self):
        check(cuda().cuStreamBeginCapture_v2(ctypes.c_void_p(self.handle), 0))

    def end_capture(self):
        graph = ctypes.c_void_p()
        check(cuda().cuStreamEndCapture(ctypes.c_void_p(self.handle), ctypes.byref(graph)))
        check(cuda().cuGraphDestroy(graph))

    def is_captured(self):
        status = ctypes.c_int()
        check(cuda().cuStreamIsCapturing(ctypes.c_void_p(self.handle), ctypes.byref(status)))
        return status.value != 0

    def fill(self, buffer, value=7):
        """Starts a memset of the whole buffer: the work runs until somebody waits for it."""
        check(cuda().cuMemsetD8Async(ctypes.c_uint64(buffer.pointer), value, ctypes.c_size_t(buffer.nbytes),
                                     ctypes.c_void_p(self.handle)))


class Hold:
    """Work on a stream that runs from `begin` to `end`."""

    def __init__(self):
        self._ended = threading.Event()
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self._ended.wait() and None)

    def begin(self, stream):
        check(cuda().cuLaunchHostFunc(ctypes.c_void_p(stream.handle), self._function, None))

    def end(self):
        self._ended.set()
