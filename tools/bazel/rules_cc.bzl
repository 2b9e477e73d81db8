"""Debian's rules_cc does not load under Bazel 4.2.3; handing on the native rules is all that the toolchain needs."""

_DEFS = """
def cc_library(**attributes):
    native.cc_library(**attributes)

def cc_binary(**attributes):
    native.cc_binary(**attributes)

def cc_test(**attributes):
    native.cc_test(**attributes)

def cc_import(**attributes):
    native.cc_import(**attributes)

def cc_proto_library(**attributes):
    native.cc_proto_library(**attributes)

def objc_library(**attributes):
    native.objc_library(**attributes)

def cc_toolchain(**attributes):
    native.cc_toolchain(**attributes)

def cc_toolchain_suite(**attributes):
    native.cc_toolchain_suite(**attributes)
"""

_TOOLCHAIN = """
toolchain_type(name = "toolchain_type", visibility = ["//visibility:public"])
"""

_COVERAGE = """
filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])
"""

def _native_rules_cc(repository_context):
    repository_context.file("WORKSPACE", "workspace(name = \"rules_cc\")\n")
    repository_context.file("cc/BUILD", _TOOLCHAIN)
    repository_context.file("BUILD", "")
    repository_context.file("cc/defs.bzl", _DEFS)

native_rules_cc = repository_rule(implementation = _native_rules_cc, local = True)

def _no_coverage_tools(repository_context):
    repository_context.file("WORKSPACE", "workspace(name = \"remote_coverage_tools\")\n")
    repository_context.file("BUILD", _COVERAGE)

no_coverage_tools = repository_rule(implementation = _no_coverage_tools, local = True)
