#!/bin/bash
# Adds what the hardware checks of several libraries on one pool need to a bundle of commpool.torch's checks
# (tests/torch/hardware_bundle.sh), which it makes first: commpool/mr.h with its programs, and the wheels of
# RMM and CCCL for the machine's Python. There, `DIR/run_libraries` runs them.
# usage: tests/libraries/hardware_bundle.sh DIR [PYTHON_VERSION [TORCH...]]
#   PYTHON_VERSION  of that machine (default 3.12)
#   TORCH           as of the other script
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '/^# usage/,/^set/s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) echo "hardware_bundle.sh: $1 is no folder, --help tells how to call it" >&2; exit 2 ;;
esac
folder=$(realpath -m "${1:?usage: hardware_bundle.sh DIR [PYTHON_VERSION [TORCH...]]}")
torches=()
(($# < 3)) || mapfile -t torches < <(realpath "${@:3}")
readonly folder python=${2:-3.12}
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
tests/torch/hardware_bundle.sh "$folder" "${torches[@]}"
source tools/common.sh
source tools/torch_environment.sh
readonly wheels=(rmm-cu13 librmm-cu13 rapids-logger cuda-bindings cuda-pathfinder)

chmod -R u+w "$folder"
mkdir -p "$folder/libraries" "$folder/wheels" "$folder/python/commpool/include/commpool"
cp src/python/commpool/_rmm_resource.cc "$folder/python/commpool/"
cp include/commpool/*.h "$folder/python/commpool/include/commpool/"
cp tests/memory_resource/*.{cc,cu} tests/libraries/*.{py,cc} examples/python/torch_and_cupy.py \
  "$folder/libraries/"
cp tests/torch/hardware_measure.py "$folder/libraries/"
cp tests/libraries/hardware_run.sh "$folder/run_libraries"

# Without them the checks of RMM are skipped there, and say so.
requirements=()
for wheel in "${wheels[@]}"; do
  for package in "${libraries_packages[@]}"; do
    [[ ${package%%==*} != "$wheel" ]] || requirements+=("$package")
  done
done
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$python" \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 --platform manylinux_2_27_x86_64 \
  --dest "$folder/wheels" "${requirements[@]}" || echo "no wheels of RMM: its checks will be skipped"
echo "$folder: $(du --summarize --human-readable "$folder" | cut -f 1); start it with $folder/run_libraries"
