#!/bin/bash
# python_test_runner.py with the real PyTorch on the emulator. Where there is none, one case says so and is skipped.
source tools/torch_environment.sh

folder=$(torch_folder)
if ! have_torch "$folder"; then
  reason="no torch $torch_version in $folder: tools/setup --torch"
  echo "skipped: $reason"
  [[ -z ${XML_OUTPUT_FILE:-} ]] || cat >"$XML_OUTPUT_FILE" <<XML
<testsuites><testsuite>
<testcase classname="Torch" name="present"><skipped message="$reason"/></testcase>
</testsuite></testsuites>
XML
  exit 0
fi

# As `commpool emulate` does; torch's own run path goes before LD_LIBRARY_PATH.
emulator=$PWD/src/emulator
preload=$emulator/cuda/libcuda.so.1:$emulator/cudart/libcudart.so.13:$emulator/nccl/libnccl.so.2
preload+=:$emulator/nvml/libnvidia-ml.so.1
exec env LD_PRELOAD="$preload" COMMPOOL_DRIVER=emulated COMMPOOL_EMULATOR_LIBRARIES="$emulator" \
  PYTHONPATH="$PWD/src/python" "$folder/bin/python" -B tools/bazel/python_test_runner.py "$@"
