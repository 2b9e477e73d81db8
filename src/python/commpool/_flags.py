"""Compiler flags for binaries that a user's compiler makes (_compile.py); the wheel's router uses them too
(tools/packaging/torch_router.py).

The router links none of torch's libraries, because no system knows their names. Whoever loads the router loads those
libraries first.
"""

COMPILE = ("-O2", "-fPIC", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-fexceptions",
           "-fasynchronous-unwind-tables")
CXX = ("-std=c++20", *COMPILE, "-fvisibility-inlines-hidden")
# An exception finds its handler by the table that the linker makes of unwind tables. If a compiler has its C++ library
# only as an archive, it puts a copy into the binary. If that copy were visible, half of it would come from the
# process's library.
LINK = ("-shared", "-Wl,--eh-frame-hdr", "-Wl,--exclude-libs,libstdc++.a")
# The torch libraries with the symbols that the router needs.
TORCHS = ("libc10_cuda.so", "libc10.so")
