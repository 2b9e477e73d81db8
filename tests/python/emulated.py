"""Runs the package on the emulator. Every test here imports it before commpool."""

import concurrent.futures
import ctypes
import os
import sys
import threading
import unittest

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


def communicators(devices):
    """One for each of the devices, as ncclCommInitAll makes them."""
    import commpool

    commpool.initialize("emulated")
    handles = (ctypes.c_void_p * len(devices))()
    check(nccl().ncclCommInitAll(handles, len(devices), (ctypes.c_int * len(devices))(*devices)))
    return list(handles)


def byte_at(address):
    """Of memory of the current device, or of what it has mapped."""
    byte = ctypes.c_uint8()
    check(cuda().cuMemcpyDtoH_v2(ctypes.byref(byte), ctypes.c_uint64(address), ctypes.c_size_t(1)))
    return byte.value


def elsewhere(function, *arguments):
    """What the function returns, or raises, on another thread, which has ended then."""
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *arguments).result()


def at_once(function, count):
    """What the function returns on each of several threads, which begin together."""
    together = threading.Barrier(count)

    def call():
        together.wait()
        return function()

    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return [started.result() for started in [threads.submit(call) for _ in range(count)]]


class Case(unittest.TestCase):
    def assertInvalid(self, reason, call, *arguments, **options):
        import commpool

        self.assertRaisesRegex(commpool.InvalidArgument, reason, call, *arguments, **options)

    def hear_unraisable(self):
        """The exceptions that nobody can catch, from here on to the end of the case."""
        heard = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = heard.append
        return heard

    def make_pool(self, *arguments, **options):
        """A pool that ends with the case."""
        import commpool

        pool = commpool.Pool(*arguments, **options)
        self.addCleanup(pool.destroy)
        return pool


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

    def destroy(self):
        check(cuda().cuStreamDestroy_v2(ctypes.c_void_p(self.handle)))

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
