"""The allocator of two functions that PyTorch's tests compile, without torch's headers: a second instead of a minute.

Over cudaMalloc, for the emulator has no managed memory, and no test touches it from the host.
"""

import itertools
import re
import subprocess
import tempfile

_PLAIN = """
#include <stddef.h>
#define C10_EXPORT __attribute__((visibility("default")))
#define C10_CUDA_CHECK(call) ((call) != 0 ? __builtin_trap() : (void)0)
extern "C" int cudaMalloc(void** pointer, size_t bytes);
extern "C" int cudaFree(void* pointer);
"""


def compile_plainly():
    """Makes torch.utils.cpp_extension.load_inline compile this allocator so; everything else stays."""
    from torch.utils import cpp_extension

    usual, folder, numbers = cpp_extension.load_inline, tempfile.mkdtemp(), itertools.count()

    def load_inline(name, cpp_sources, *arguments, **words):
        if words.get("is_python_module", True) or "cudaMallocManaged" not in cpp_sources:
            return usual(name, cpp_sources, *arguments, **words)
        source = re.sub(r"#include <.*>", "", cpp_sources).replace("cudaMallocManaged", "cudaMalloc")
        library = f"{folder}/{name}_{next(numbers)}.so"  # each library has variables of its own, as torch's have
        subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=_PLAIN + source, text=True,
                       check=True)
        return library

    cpp_extension.load_inline = load_inline
