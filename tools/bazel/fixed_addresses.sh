#!/bin/bash
# Runs a test without address space randomisation: TSan cannot place its shadow where the kernel scatters mappings
# widely. Some containers forbid this; most of those scatter less.
if setarch --addr-no-randomize true 2>/dev/null; then
  exec setarch --addr-no-randomize "$@"
fi
exec "$@"
