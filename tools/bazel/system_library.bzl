"""Repository rules that find what tools/setup installed: environment variable, then usual places, then its cache."""

_LIBRARY = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "{name}",
    linkopts = {linkopts},
    deps = [":headers"],
)

# For programs that open the library at run time, or not at all.
cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    defines = {defines},
    includes = ["include"],
    deps = {deps},
)

# The headers as files, for tests that compile outside of Bazel.
filegroup(
    name = "files",
    srcs = glob(["include/**"]),
)
"""

_MISSING = """

{title} not found: {why}
Run this once:  tools/setup
or set {variable} to the folder that holds it.
"""

def _cache(environment):
    return environment.get("COMMPOOL_CACHE", environment.get("HOME", "") + "/.cache/commpool")

def _version(repository_context, header, macro):
    """The integer that `#define MACRO` has in the header; 0 where it has none."""
    for line in repository_context.read(header).split("\n"):
        words = [word for word in line.replace("\t", " ").split(" ") if word]
        if len(words) >= 3 and words[0] == "#define" and words[1] == macro and words[2].isdigit():
            return int(words[2])
    return 0

def _unsuited(repository_context, place):
    """Why this folder cannot serve; empty when it can."""
    attributes = repository_context.attr
    marker = repository_context.path(place + "/" + attributes.marker)
    if not marker.exists:
        return "no {} in {}".format(attributes.marker, place)
    if attributes.version_macro:
        version = _version(repository_context, marker, attributes.version_macro)
        if version < attributes.minimum_version:
            return "{} in {} is {}, less than {}".format(
                attributes.version_macro,
                place,
                version,
                attributes.minimum_version,
            )
    return ""

def _find(repository_context):
    attributes = repository_context.attr
    environment = repository_context.os.environ
    asked = environment.get(attributes.variable, "")
    cached = [_cache(environment) + "/" + place for place in attributes.cached]
    places = [asked] if asked else attributes.places + cached
    reasons = []
    for place in places:
        reason = _unsuited(repository_context, place)
        if not reason:
            return place
        reasons.append(reason)
    return fail(_MISSING.format(title = attributes.title, why = "; ".join(reasons), variable = attributes.variable))

def _system_library(repository_context):
    place = _find(repository_context)
    attributes = repository_context.attr

    # Only what is named is linked: /usr/include as a whole must not enter the include path before the compiler's own.
    for header in attributes.headers:
        source = repository_context.path(place + "/" + header)
        if source.exists:
            repository_context.symlink(source, "include/" + header)
    if not attributes.headers:
        repository_context.symlink(place, "include")
    for header, content in attributes.instead.items():
        repository_context.file("include/" + header, "#pragma once\n" + content)
    repository_context.file("BUILD", _LIBRARY.format(
        name = repository_context.name,
        defines = repr(attributes.defines),
        linkopts = repr(attributes.linkopts),
        deps = repr(attributes.deps),
    ))

def _system_folder(repository_context):
    place = repository_context.path(_find(repository_context))
    for entry in place.readdir():
        if not repository_context.attr.build_file or entry.basename not in ["BUILD", "BUILD.bazel"]:
            repository_context.symlink(entry, entry.basename)
    if repository_context.attr.build_file:
        repository_context.symlink(repository_context.attr.build_file, "BUILD")

# Each variable that a rule may read has to be named here, or setting it would not make Bazel look again.
_VARIABLES = [
    "COMMPOOL_BAZEL_PLATFORMS",
    "COMMPOOL_BAZEL_RULES_JAVA",
    "COMMPOOL_BAZEL_RULES_PROTO",
    "COMMPOOL_BAZEL_SKYLIB",
    "COMMPOOL_CACHE",
    "COMMPOOL_CLI11_INCLUDE",
    "COMMPOOL_CUDA_INCLUDE",
    "COMMPOOL_D3",
    "COMMPOOL_GOOGLETEST",
    "COMMPOOL_JSON_INCLUDE",
    "COMMPOOL_LZMA_INCLUDE",
    "COMMPOOL_MPI_INCLUDE",
    "COMMPOOL_NCCL_INCLUDE",
    "COMMPOOL_PYTHON_INCLUDE",
    "HOME",
]

_PLACE = {
    "title": attr.string(mandatory = True, doc = "What the error message calls it."),
    "variable": attr.string(mandatory = True, doc = "Environment variable that names the one folder to take."),
    "marker": attr.string(mandatory = True, doc = "File that the folder must hold."),
    "places": attr.string_list(doc = "Folders to look into, in order."),
    "cached": attr.string_list(doc = "Folders below tools/setup's cache to look into last."),
    "version_macro": attr.string(doc = "Macro of the marker that holds the version as one integer."),
    "minimum_version": attr.int(doc = "Least value of that macro."),
}

system_library = repository_rule(
    implementation = _system_library,
    local = True,
    environ = _VARIABLES,
    attrs = dict(
        _PLACE,
        headers = attr.string_list(doc = "Only these files and folders; empty for the whole folder."),
        instead = attr.string_dict(doc = "Headers with this content, in place of the system's."),
        defines = attr.string_list(),
        linkopts = attr.string_list(),
        deps = attr.string_list(doc = "Libraries that the headers include."),
    ),
    doc = "A cc_library over headers of this machine.",
)

system_folder = repository_rule(
    implementation = _system_folder,
    local = True,
    environ = _VARIABLES,
    attrs = dict(
        _PLACE,
        build_file = attr.label(allow_single_file = True, doc = "Used in place of the folder's own."),
    ),
    doc = "A folder of this machine as a repository.",
)
