"""Thread-local variables by descriptors: in a shared library a load instead of a call, where the compiler has a choice."""

FAST_THREAD_LOCALS = select({
    "//tools/bazel:x86_64": ["-mtls-dialect=gnu2"],
    "//conditions:default": [],  # AArch64 compilers use descriptors anyway
})
