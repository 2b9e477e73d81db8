#!/bin/bash
# Runs a test under ThreadSanitizer: with the suppressions beside this file, and without address space randomisation,
# for TSan cannot place its shadow where the kernel scatters mappings widely. Some containers forbid the latter; most of
# those scatter less.
suppressions=$TEST_SRCDIR/$TEST_WORKSPACE/tools/bazel/tsan_suppressions.txt
export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$suppressions
if setarch --addr-no-randomize true 2>/dev/null; then
  exec setarch --addr-no-randomize "$@"
fi
exec "$@"
