"""Thread-local variables by descriptors: a load instead of a call in shared libraries."""

FAST_THREAD_LOCALS = select({
    "//tools/bazel:x86_64": ["-mtls-dialect=gnu2"],
    "//conditions:default": [],  # AArch64 compilers use descriptors anyway
})
