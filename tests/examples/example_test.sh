#!/bin/bash
# Runs an example as a user does and compares what it says.
# usage: example_test.sh RANKS STATUS EXPECTED... -- COMMAND...     (RANKS 0: without mpirun)
#   EXPECTED   a regular expression that some line of the output has to match
set -uo pipefail

readonly ranks=$1 status=$2
# What the emulator and the library say of a program that does not clean up. The library keeps its default pools.
readonly broken="broken rule|commpool warning|^NCCL |^stream "
shift 2
expected=()
while [[ $1 != -- ]]; do
  expected+=("$1")
  shift
done
shift

command=("$@")
if ((ranks > 0)); then command=(/bin/bash tools/bazel/mpi_test.sh "$ranks" "$@"); fi
# An emulator that nobody described says at the end what was left behind.
export COMMPOOL_EMULATOR=${COMMPOOL_EMULATOR-report=exit}
output=$("${command[@]}" 2>&1)
actual=$?
echo "$output"

failed=0
complain() { echo "FAILED: $*"; failed=1; }
((actual == status)) || complain "status $actual, not $status"
for line in "${expected[@]}"; do
  grep -qE -- "$line" <<<"$output" || complain "no line matches: $line"
done
said=$(grep -cE '^rank [0-9]+: ' <<<"$output")
if ((status != 0 && ranks > 0 && said != 1)); then complain "$said ranks say why, not one"; fi
if ((status == 0)) && grep -E "$broken" <<<"$output"; then complain "a rule was broken or something left behind"; fi
exit $failed
