"""What is below other libraries: memory straight from the driver, and what Python and C write to stderr."""

import contextlib
import ctypes
import io
import os
import tempfile

import emulated


def allocate(nbytes):
    pointer = ctypes.c_uint64()
    emulated.check(emulated.cuda().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
    return pointer.value


def free(pointer):
    emulated.check(emulated.cuda().cuMemFree_v2(ctypes.c_uint64(pointer)))


def pool_that_keeps(nbytes):
    """Device 0's pool of the driver, whose pages have 32 MiB, with freed memory that it keeps for ever."""
    pool, pointer, nothing, cuda = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), emulated.cuda()
    emulated.check(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0))
    for_ever = ctypes.c_uint64(2**64 - 1)
    emulated.check(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(for_ever)))  # the release threshold
    emulated.check(cuda.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(nbytes), nothing))
    emulated.check(cuda.cuMemFreeAsync(pointer, nothing))
    emulated.check(cuda.cuCtxSynchronize())
    return pool.value


def said_in_python(act):
    """What Python writes to stderr meanwhile."""
    with contextlib.redirect_stderr(io.StringIO()) as text:
        act()
    return text.getvalue()


def said_in_c(act):
    """What the process writes to stderr meanwhile, in Python and in C."""
    with tempfile.TemporaryFile("w+") as file, contextlib.redirect_stderr(file):
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            act()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.flush()
        file.seek(0)
        return file.read()
