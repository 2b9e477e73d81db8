"""A stand-in for CuPy: its current stream, and what its documentation says about two allocator classes. CuPy itself
links a runtime that needs the real driver; it is tested on GPUs.
"""

import ctypes

__version__ = "stand-in"
DEVICE = [0]
STREAM = [0]
ALLOCATOR = [None]


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"{size} of {total}, limit {limit}")


class _Memory:
    def __init__(self, ptr, free):
        self.ptr, self._free = ptr, free

    def __del__(self):
        if self.ptr:
            self._free(self.ptr)


class MemoryPointer:
    def __init__(self, mem):
        self.mem, self.ptr = mem, mem.ptr


class CFunctionAllocator:
    """Calls C with the GIL, as CuPy does."""

    def __init__(self, param, malloc_func, free_func, owner):
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        allocate = ctypes.PYFUNCTYPE(pointer, pointer, size, ctypes.c_int)(malloc_func)
        free = ctypes.PYFUNCTYPE(None, pointer, pointer, ctypes.c_int)(free_func)
        self._allocate = lambda nbytes: allocate(param, nbytes, DEVICE[0])
        self._free = lambda ptr, owner=owner: free(param, ptr, DEVICE[0])

    def malloc(self, size):
        return MemoryPointer(_Memory((self._allocate(size) or 0) if size else 0, self._free))


class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func):
        self._allocate, self._free = malloc_func, free_func

    def malloc(self, size):
        device = DEVICE[0]
        ptr = self._allocate(size, device) if size else 0
        return MemoryPointer(_Memory(ptr, lambda ptr: self._free(ptr, device)))


class _Stream:
    @property
    def ptr(self):
        return STREAM[0]


class cuda:
    class memory:
        OutOfMemoryError = OutOfMemoryError

    class runtime:
        @staticmethod
        def getDevice():
            return DEVICE[0]

    CFunctionAllocator, PythonFunctionAllocator = CFunctionAllocator, PythonFunctionAllocator

    @staticmethod
    def get_current_stream():
        return _Stream()

    @staticmethod
    def set_allocator(allocator):
        ALLOCATOR[0] = allocator


class zeros:
    """Elements are float64; it writes nothing."""

    def __init__(self, length):
        self.data = ALLOCATOR[0](8 * length)
