"""Libraries of the product: their sources read the standard library's headers in a form that is compiled once.

Optimised builds read them as they are: GCC 12 warns falsely of strings there once it has the compiled form. A source
still includes what it uses: Clang's analysis (tools/check) reads those that hold locks without them.
"""

load("//tools/bazel:precompiled.bzl", "copts_of")

_HEADERS = "//tools/bazel/precompiled:headers"
_OPTIMISED = "//tools/bazel:optimised"

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
        copts = select({_OPTIMISED: [], "//conditions:default": copts_of(_HEADERS)}) + copts
        deps = deps + select({_OPTIMISED: [], "//conditions:default": [_HEADERS]})
    native.cc_library(name = name, srcs = srcs, copts = copts, deps = deps, **attributes)

def folder_library(name, but = [], deep = False, **attributes):
    """All sources and headers of a folder, as one library.

    Args:
      name: as of the native rule.
      but: files that are no part of it.
      deep: whether folders below, which have no BUILD file, are parts of it too.
      **attributes: as of cc_library.
    """
    above = "**/" if deep else ""
    cc_library(
        name = name,
        srcs = native.glob([above + "*.cc"], exclude = but),
        hdrs = native.glob([above + "*.h"], exclude = but),
        **attributes
    )
