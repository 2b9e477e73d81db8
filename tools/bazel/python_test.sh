#!/bin/bash
exec python3 -B tools/bazel/python_test_runner.py "$@"
