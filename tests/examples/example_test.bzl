"""Examples, run as a user does: what they say is compared (example_test.sh)."""

# mpirun opens sockets and shared memory of this machine.
_RANKED = [
    "cpu:2",
    "local",
    "mpi",
]

def example_test(
        name,
        lines,
        example = None,
        ranks = 0,
        status = 0,
        within = [],
        words = [],
        of_ranks = False,
        size = "small"):
    """A run of one example.

    Args:
      name: of the test.
      lines: regular expressions, each of which some line of the output has to match.
      example: the program; without it the test's name without `_test`.
      ranks: how many processes mpirun starts; 0 does without mpirun.
      status: with which the run ends.
      within: a command that runs the program.
      words: the program's arguments.
      of_ranks: whether the program starts ranks itself.
      size: as of sh_test.
    """
    program = "//examples:" + (example or name[:-len("_test")])
    quoted = ["'" + line + "'" for line in lines]
    native.sh_test(
        name = name,
        size = size,
        srcs = ["example_test.sh"],
        args = [str(ranks), str(status)] + quoted + ["--"] + within + ["$(rootpath " + program + ")"] + words,
        data = [program] + (["//tools/bazel:mpi_test.sh"] if ranks else []),
        tags = _RANKED if ranks or of_ranks else [],
    )
