"""Tests that run as several ranks under mpirun."""

def mpi_test(name, ranks, srcs, deps, args = [], copts = [], tags = [], **attributes):
    """A GoogleTest program run by `ranks` processes; rank 0 writes the report.

    Args:
      name: of the test; its program is called NAME_program.
      ranks: number of processes.
      srcs: sources of the program.
      deps: libraries of the program; @mpi is added.
      args: of the program.
      copts: of the program.
      tags: of the test and of its program; `hardware` puts the program into the bundle of tools/bundle.
      **attributes: as of sh_test.
    """
    native.cc_binary(
        name = name + "_program",
        testonly = True,
        srcs = srcs,
        copts = copts,
        tags = tags + ["mpi"],
        deps = deps + ["@mpi"],
    )
    native.sh_test(
        name = name,
        srcs = ["//tools/bazel:mpi_test.sh"],
        args = [str(ranks), "$(rootpath :{}_program)".format(name)] + args,
        data = [":{}_program".format(name)] + attributes.pop("data", []),
        # mpirun opens sockets and shared memory of this machine.
        tags = [tag for tag in tags if tag != "hardware"] + ["cpu:2", "local", "mpi"],
        **attributes
    )
