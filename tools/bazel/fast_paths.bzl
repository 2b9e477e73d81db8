"""For code that an allocation or a free runs through.

Thread-local variables by descriptors: a load instead of a call in shared libraries. And counters one by one: GCC 12
joins two of them into one vector, and a vector load after two stores of its halves waits for both stores to end.
"""

FAST_PATHS = ["-fno-tree-slp-vectorize"] + select({
    "//tools/bazel:clang": [],  # Clang 14 has no descriptors on x86-64
    "//tools/bazel:x86_64": ["-mtls-dialect=gnu2"],
    "//conditions:default": [],  # AArch64 compilers use descriptors anyway
})
