"""What the build stands on: Bazel's own rule sets as Debian and Ubuntu ship them, and the system's libraries."""

load("//tools/bazel:rules_cc.bzl", "native_rules_cc", "no_coverage_tools")
load("//tools/bazel:system_library.bzl", "system_folder", "system_library")

# cuda.h, cudaTypedefs.h, NVTX and all that they include; the whole toolkit would be linked into every sandbox.
_CUDA_HEADERS = [
    "builtin_types.h",
    "channel_descriptor.h",
    "crt",
    "cuda.h",
    "cudaTypedefs.h",
    "cuda_device_runtime_api.h",
    "cuda_runtime_api.h",
    "device_types.h",
    "driver_functions.h",
    "driver_types.h",
    "library_types.h",
    "nv",
    "nvtx3",
    "surface_types.h",
    "texture_types.h",
    "vector_functions.h",
    "vector_functions.hpp",
    "vector_types.h",
]

# What nccl.h includes and does not use: the runtime API's C++ headers and the small floating-point types are most of
# what a file that includes nccl.h would have to read. The streams that it names come with the runtime API's C header.
_INSTEAD = {
    "cuda_bf16.h": "",
    "cuda_fp16.h": "",
    "cuda_fp8.h": "",
    "cuda_runtime.h": "#include <cuda_runtime_api.h>\n",
}

def commpool_dependencies():
    _bazel_rule_sets()
    _cuda_and_nccl()
    system_library(
        name = "mpi",
        title = "Open MPI (mpi.h)",
        variable = "COMMPOOL_MPI_INCLUDE",
        marker = "mpi.h",
        places = [
            "/usr/lib/x86_64-linux-gnu/openmpi/include",
            "/usr/lib/aarch64-linux-gnu/openmpi/include",
            "/usr/local/include",
        ],
        defines = ["OMPI_SKIP_MPICXX=1"],
        linkopts = ["-lmpi"],
    )
    system_library(
        name = "json",
        title = "nlohmann-json",
        variable = "COMMPOOL_JSON_INCLUDE",
        marker = "nlohmann/json.hpp",
        places = ["/usr/include", "/usr/local/include"],
        headers = ["nlohmann"],
    )
    system_library(
        name = "cli11",
        title = "CLI11",
        variable = "COMMPOOL_CLI11_INCLUDE",
        marker = "CLI/CLI.hpp",
        places = ["/usr/include", "/usr/local/include"],
        headers = ["CLI"],
    )
    system_library(
        name = "python",
        title = "Python's headers (Python.h)",
        variable = "COMMPOOL_PYTHON_INCLUDE",
        marker = "Python.h",
        places = ["/usr/include/python3." + minor for minor in ["11", "12", "13", "14"]],
    )
    system_library(
        name = "lzma",
        title = "liblzma (lzma.h)",
        variable = "COMMPOOL_LZMA_INCLUDE",
        marker = "lzma.h",
        places = ["/usr/include", "/usr/local/include"],
        headers = ["lzma.h", "lzma"],
        # Part of the program: a machine that runs it need not have the library.
        linkopts = ["-l:liblzma.a"],
    )
    system_folder(
        name = "d3",
        title = "D3 5 (d3.min.js of Debian's node-d3)",
        variable = "COMMPOOL_D3",
        marker = "d3.min.js",
        places = ["/usr/share/nodejs/d3/dist"],
        cached = ["d3"],
        build_file = "//tools/bazel:d3.BUILD",
    )
    system_folder(
        name = "googletest",
        title = "GoogleTest's sources",
        variable = "COMMPOOL_GOOGLETEST",
        marker = "googletest/src/gtest-all.cc",
        places = ["/usr/src/googletest"],
        build_file = "//tools/bazel:googletest.BUILD",
    )

def _cuda_and_nccl():
    system_library(
        name = "cuda",
        title = "The headers of CUDA 13 (cuda.h)",
        variable = "COMMPOOL_CUDA_INCLUDE",
        marker = "cuda.h",
        version_macro = "CUDA_VERSION",
        minimum_version = 13000,
        places = ["/usr/local/cuda/include", "/usr/local/cuda-13/include"],
        cached = ["cuda/include"],
        headers = _CUDA_HEADERS,
    )
    system_library(
        name = "nccl",
        title = "NCCL's header (nccl.h)",
        variable = "COMMPOOL_NCCL_INCLUDE",
        marker = "nccl.h",
        places = ["/usr/local/cuda/include", "/usr/local/include", "/usr/include"],
        cached = ["nccl/include"],
        version_macro = "NCCL_VERSION_CODE",
        minimum_version = 22800,
        headers = ["nccl.h"],
        instead = _INSTEAD,
        deps = ["@cuda"],
    )

def _bazel_rule_sets():
    native_rules_cc(name = "rules_cc")
    no_coverage_tools(name = "remote_coverage_tools")
    for name, folder, package in [
        ("rules_java", "rules/java", "bazel-rules-java"),
        ("rules_proto", "rules/proto", "bazel-rules-proto"),
        ("bazel_skylib", "tools/skylib", "bazel-skylib"),
        ("platforms", "tools/platforms", "bazel-platforms"),
    ]:
        system_folder(
            name = name,
            title = "Bazel's @{} (package {})".format(name, package),
            variable = "COMMPOOL_" + package.upper().replace("-", "_"),
            marker = "WORKSPACE",
            places = ["/usr/share/bazel/" + folder, "/usr/share/bazel-bootstrap/" + folder],
        )
