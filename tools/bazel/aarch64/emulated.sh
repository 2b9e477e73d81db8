#!/bin/bash
# Runs a test that was built for aarch64 under emulation of the processor: in full, and slowly.
exec qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"
