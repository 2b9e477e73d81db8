#!/bin/bash
# usage: mpi_test.sh RANKS PROGRAM [ARGUMENT...]     (mpirun calls it again as mpi_test.sh rank PROGRAM ...)
set -eu

if [[ $1 == rank ]]; then
  # All ranks would write the same report.
  if [[ ${OMPI_COMM_WORLD_RANK:-0} != 0 ]]; then unset XML_OUTPUT_FILE; fi
  # Open MPI unloads modules whose memory it keeps: nothing tells those leaks from ours.
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
  exec "${@:2}"
fi

options=(--oversubscribe --mca orte_abort_print_stack 0 --mca btl_vader_single_copy_mechanism none)
if [[ $(id -u) == 0 ]]; then options+=(--allow-run-as-root); fi
# Open MPI's session folder holds sockets, whose paths have to be short.
export TMPDIR=/tmp GTEST_COLOR=no
exec mpirun "${options[@]}" -np "$1" /bin/bash "$0" rank "${@:2}"
