"""How the router is compiled, by a user's compiler (_build.py) as for the wheel (tools/packaging/torch_router.py).

It is linked with none of torch's libraries, whose names no system knows: who loads it makes theirs known first.
"""

COMPILE = ("-O2", "-fPIC", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-fexceptions",
           "-fasynchronous-unwind-tables")
CXX = ("-std=c++20", *COMPILE, "-fvisibility-inlines-hidden")
# What is thrown finds its way by the table that the linker makes of unwind tables. A compiler that finds its C++
# library as an archive alone puts a copy into the router: were it seen, half of it would be taken from torch's.
LINK = ("-shared", "-Wl,--eh-frame-hdr", "-Wl,--exclude-libs,libstdc++.a")
# Torch's libraries that have what the router asks for.
TORCHS = ("libc10_cuda.so", "libc10.so")
