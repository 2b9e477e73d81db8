"""Libraries of the product: their sources read the standard library's headers in a form that is compiled once.

A source still includes what it uses: Clang's analysis (tools/check) reads those that hold locks without them.
"""

load("//tools/bazel:precompiled.bzl", "copts_of")
load("//tools/bazel:small_code.bzl", "SMALL_CODE")

# A compiled form serves one level of optimisation.
_HEADERS = "//tools/bazel/precompiled:headers"
_OF_SMALL_CODE = "//tools/bazel/precompiled:headers_of_small_code"

def cc_library(name, srcs = [], copts = [], deps = [], **attributes):
    """As the native rule.

    Args:
      name: as of the native rule.
      srcs: likewise.
      copts: likewise.
      deps: likewise; the compiled headers are added where there is something to compile.
      **attributes: likewise.
    """
    if srcs:
        headers = _OF_SMALL_CODE if copts == SMALL_CODE else _HEADERS
        copts = copts_of(headers) + copts
        deps = deps + [headers]
    native.cc_library(name = name, srcs = srcs, copts = copts, deps = deps, **attributes)
