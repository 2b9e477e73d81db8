"""Python tests that need the real PyTorch: on the emulator, with what `tools/setup --torch` made; else skipped."""

def torch_test(name, srcs, imports = [], args = [], data = [], tags = [], **attributes):
    """A test over the unittest cases of its sources; one skipped case where there is no torch.

    Args:
      name: of the test.
      srcs: files with unittest cases, and modules beside them that they import.
      imports: labels of further modules, of other packages.
      args: words that the cases find in sys.argv.
      data: files that the cases read.
      tags: as of sh_test.
      **attributes: as of sh_test.
    """
    native.sh_test(
        name = name,
        srcs = ["//tools/bazel:torch_test.sh"],
        args = ["$(rootpath {})".format(source) for source in imports + srcs] + ["--"] + args,
        data = imports + srcs + data + [
            "//src/emulator:libraries",
            "//tools:torch_environment.sh",
            "//tools/bazel:python_test_runner.py",
        ],
        # Bazel does not see torch come and go.
        # The operations are compiled once, and kept outside of the sandbox.
        tags = tags + [tag for tag in ["external", "local", "torch"] if tag not in tags],
        **attributes
    )
