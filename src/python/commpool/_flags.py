"""How binaries are compiled by a user's compiler (_compile.py), the router for the wheel too
(tools/packaging/torch_router.py).

The router is linked with none of torch's libraries, whose names no system knows: who loads it makes theirs known first.
"""

COMPILE = ("-O2", "-fPIC", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-fexceptions",
           "-fasynchronous-unwind-tables")
CXX = ("-std=c++20", *COMPILE, "-fvisibility-inlines-hidden")
# What is thrown finds its way by the table that the linker makes of unwind tables. A compiler that finds its C++
# library as an archive alone puts a copy into the binary: were it seen, half of it would be taken from the process's.
LINK = ("-shared", "-Wl,--eh-frame-hdr", "-Wl,--exclude-libs,libstdc++.a")
# Torch's libraries that have what the router asks for.
TORCHS = ("libc10_cuda.so", "libc10.so")
