"""The tests in C++: small ones of one source, unless they say otherwise."""

load("//tools/bazel:precompiled.bzl", "copts_of")

_MAIN = "@googletest//:main"
_EVERY_TEST = "//tests/precompiled:of_every_test"
_POOL_TESTS = "//tests/precompiled:of_pool_tests"

def _precompiled_for(deps):
    fixtures = [dep for dep in deps if dep.endswith(":pool_fixture") or dep.endswith(":symmetric_fixture")]
    return _POOL_TESTS if fixtures else _EVERY_TEST

def commpool_test(name, deps, srcs = None, size = "small", copts = [], **attributes):
    """A GoogleTest program.

    Args:
      name: of the test, and of its one source without srcs: NAME.cc.
      deps: libraries; GoogleTest's main is added, and the headers that are compiled once.
      srcs: sources, where they are not that one.
      size: as of cc_test.
      copts: as of cc_test.
      **attributes: as of cc_test. The tag `hardware` puts the test into the bundle of tools/bundle.
    """
    headers = _precompiled_for(deps)
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = copts_of(headers) + copts,
        deps = deps + [headers] + ([] if _MAIN in deps else [_MAIN]),
        **attributes
    )
