"""Libraries of the product: their sources read the standard library's headers in a form that is compiled once.

Code that is compiled for size (small_code.bzl) has other options, so it has a form of its own. A source still includes
what it uses: Clang's analysis (tools/check) reads those that hold locks without them.
"""

load("//tools/bazel:precompiled.bzl", "copts_of")
load("//tools/bazel:small_code.bzl", "SMALL_CODE")

_HEADERS = "//tools/bazel/precompiled:headers"

# For sources with FAST_PATHS that include pools.
OF_POOLS = "//tools/bazel/precompiled:of_pools"

def cc_library(name, srcs = [], copts = [], deps = [], precompiled = _HEADERS, small = False, **attributes):
    """As the native rule.

    Args:
      name: as of the native rule.
      srcs: likewise.
      copts: likewise.
      deps: likewise; the compiled headers are added where there is something to compile.
      precompiled: those headers.
      small: whether it is compiled for size.
      **attributes: likewise.
    """
    if srcs:
        of_small = precompiled + "_small" if small else precompiled
        copts = copts_of(precompiled, optimised = of_small) + copts + (SMALL_CODE if small else [])
        deps = deps + select({
            "//tools/bazel:optimised": [of_small],
            "//conditions:default": [precompiled],
        })

    # No shared library beside it: libcommpool.so is the only one, and hidden symbols lie in several of these.
    native.cc_library(name = name, srcs = srcs, copts = copts, deps = deps, linkstatic = True, **attributes)

def folder_library(name, only = ["*"], but = [], **attributes):
    """The sources and headers of a folder as one library.

    Args:
      name: as of the native rule.
      only: names of files without their endings, or patterns of them. A folder below without a BUILD file: "below/*".
      but: likewise, of what is no part of it.
      **attributes: as of cc_library.
    """
    cc_library(
        name = name,
        srcs = native.glob([file + ".cc" for file in only], exclude = [file + ".cc" for file in but]),
        hdrs = native.glob([file + ".h" for file in only], exclude = [file + ".h" for file in but]),
        **attributes
    )
