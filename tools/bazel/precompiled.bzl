"""Headers that many sources include, compiled once: most of a test's compilation is GoogleTest's and its fixture's.

What cannot use the compiled form, because its options differ, reads the header itself: it only takes longer.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_implementation(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    included = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = included.compilation_context

    # Under a name that the sources do not have: a compiler takes the first header that it finds, compiled or not. GCC
    # warns of `#pragma once` in what it compiles by itself, and each source includes this once.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.expand_template(template = ctx.file.header, output = header, substitutions = {"#pragma once": ""})
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + [
            "-x",
            "c++-header",
            # Notes in it what it was made from.
            "-MD",
            "-MF",
            "/dev/null",
        ],
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([header], transitive = [context.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling " + header.short_path,
    )
    here = cc_common.create_compilation_context(headers = depset([header, compiled]))

    # The headers alone: who depends on a library links it.
    headers = [CcInfo(compilation_context = each) for each in [context, here]]
    return [DefaultInfo(files = depset([header])), cc_common.merge_cc_infos(cc_infos = headers)]

precompiled = rule(
    implementation = _precompiled_implementation,
    attrs = {
        "copts": attr.string_list(),  # as the sources have: with others the compiled form cannot be used
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _include(label):
    return ["-include", label[2:].replace(":", "/") + ".h"]

def copts_of(label, optimised = None):
    """What lets a source that depends on a precompiled header use it.

    Args:
      label: of the header, from the root.
      optimised: of another one that serves in optimised builds.
    """

    # The files behind it count as what the source was made from, as if it had read them itself; Clang says so unasked.
    return select({
        "//tools/bazel:optimised": _include(optimised or label),
        "//conditions:default": _include(label),
    }) + select({
        "//tools/bazel:clang": [],
        "//conditions:default": ["-fpch-deps"],
    })
