"""Optimised for size: for code that runs once a pool or on errors, most of it sentences made of strings.

It is a third to a half of what it would be: the library has a limit (LIBRARY_BYTES in tools/packaging/portability.py).
"""

SMALL_CODE = select({
    "//tools/bazel:optimised": ["-Os"],
    "//conditions:default": [],
})
