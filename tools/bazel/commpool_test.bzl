"""The tests in C++: small ones of one source, unless they say otherwise."""

_MAIN = "@googletest//:main"

def commpool_test(name, deps, srcs = None, size = "small", **attributes):
    """A GoogleTest program.

    Args:
      name: of the test, and of its one source without srcs: NAME.cc.
      deps: libraries; GoogleTest's main is added.
      srcs: sources, where they are not that one.
      size: as of cc_test.
      **attributes: as of cc_test. The tag `hardware` puts the test into the bundle of tools/bundle.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        deps = deps + ([] if _MAIN in deps else [_MAIN]),
        **attributes
    )
