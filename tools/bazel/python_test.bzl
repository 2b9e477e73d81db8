"""Python tests, case by case in the report. (py_test wants a `python` command, which Debian does not have.)"""

def python_test(name, srcs, imports = [], args = [], data = [], **attributes):
    """A test over the unittest cases of its sources.

    Args:
      name: of the test.
      srcs: files with unittest cases, and modules beside them that they import.
      imports: labels of further modules, of other packages.
      args: words that the cases find in sys.argv.
      data: files that the cases read.
      **attributes: as of sh_test.
    """
    native.sh_test(
        name = name,
        srcs = ["//tools/bazel:python_test.sh"],
        args = ["$(rootpath {})".format(source) for source in imports + srcs] + ["--"] + args,
        data = imports + srcs + data + ["//tools/bazel:python_test_runner.py"],
        **attributes
    )
