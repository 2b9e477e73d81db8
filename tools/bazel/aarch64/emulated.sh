#!/bin/bash
# Runs a test that was built for aarch64 under emulation of the processor: in full, and slowly.
# The loader and the C library have to be of one build, or threads hang: both are the cross compiler's.
readonly root=/usr/aarch64-linux-gnu
exec qemu-aarch64-static -L $root -E LD_LIBRARY_PATH=$root/lib "$@"
