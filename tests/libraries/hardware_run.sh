#!/bin/bash
# Runs the hardware checks of several libraries on one pool, from the folder that hardware_bundle.sh made. Needs python3
# with torch and CuPy, g++, CUDA's headers and a driver; nvcc for Thrust, RMM from the folder's wheels. What is missing
# is skipped, and said. Results go into RESULTS (default: results beside this file).
# usage: run_libraries [facts] [streams] [compiled] [times]      (default: all)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
readonly results=${RESULTS:-$PWD/results} cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$results" build
export COMMPOOL_CACHE=${COMMPOOL_CACHE:-$PWD/cache} COMMPOOL_DRIVER=cuda
for switch in NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1; do
  name=${switch%%=*}
  export "$name=${!name-${switch#*=}}"
  [[ ${!name} == "${switch#*=}" ]] || { echo "run: refused: $name has to be ${switch#*=}" >&2; exit 3; }
done
failed=0
readonly seconds=240  # a part that hangs ends

part() {
  echo "== $1"
  timeout --kill-after=10 "$seconds" "${@:2}" 2>&1 | tee "$results/libraries-$1.txt"
  ((PIPESTATUS[0] == 0)) || { echo "== $1 FAILED"; failed=1; }
}

# RMM and CCCL as they lie in the wheels, without an installation.
unpacked=$PWD/build/packages
if [[ ! -d $unpacked ]]; then
  mkdir -p "$unpacked"
  for wheel in wheels/*.whl; do [[ ! -f $wheel ]] || python3 -m zipfile -e "$wheel" "$unpacked"; done
fi
export PYTHONPATH=$PWD/python:$PWD/libraries:$PWD/tests PYTHONPATH_OF_RMM=$unpacked
readonly rmm=$unpacked/librmm logger=$unpacked/rapids_logger/lib64
readonly flags=(-std=c++20 -O2 "-I$PWD/python/commpool/include" -isystem "$rmm/include/rapids" -isystem "$rmm/include"
  -isystem "$unpacked/rapids_logger/include")
readonly links=("-L$PWD/python/commpool/lib" -l:libcommpool.so.0 "-L$rmm/lib64" -lrmm "-L$logger" -lrapids_logger
  "-L$cuda/lib64" -lcudart)
readonly paths="$PWD/python/commpool/lib:$rmm/lib64:$logger:$cuda/lib64"

# compile OUTPUT SOURCE: by nvcc where its name ends in .cu, else by g++
compile() {
  if [[ $2 == *.cu ]]; then
    # As -I: its own CCCL, which is older, comes before -isystem.
    nvcc "${flags[@]/#-isystem/-I}" --extended-lambda -arch=native "$2" -o "$1" "${links[@]}" -Xlinker "-rpath=$paths"
  else
    g++ "${flags[@]}" -isystem "$cuda/include" "$2" -o "$1" "${links[@]}" -ldl -Wl,-rpath,"$paths"
  fi
}

# What `times` runs for RMM in C++.
pairs() { [[ -x build/pairs || ! -d $rmm ]] || compile build/pairs libraries/pairs.cc; }

compiled() {
  [[ -d $rmm ]] || { echo "skipped: no wheels of RMM, whose headers bring CCCL"; return 0; }
  compile build/program libraries/program.cc || return 1
  for case in $(build/program); do
    timeout 60 build/program "$case" || return 1
  done
  pairs || return 1
  command -v nvcc >/dev/null || { echo "skipped: thrust.cu, for there is no nvcc"; return 0; }
  compile build/thrust libraries/thrust.cu && timeout 60 build/thrust
}

for name in "${@:-facts streams compiled times}"; do
  for word in $name; do
    case $word in
      facts) part facts python3 libraries/hardware_check.py ;;
      streams) part streams python3 libraries/hardware_streams.py --record "$results/libraries-H200.jsonl" ;;
      compiled)
        echo "== compiled"
        compiled 2>&1 | tee "$results/libraries-compiled.txt"
        ((PIPESTATUS[0] == 0)) || { echo "== compiled FAILED"; failed=1; }
        ;;
      times)
        pairs || failed=1
        part times python3 libraries/hardware_times.py --record "$results/libraries-H200.jsonl"
        ;;
      *) echo "run: $word is none of facts, streams, compiled, times" >&2; exit 2 ;;
    esac
  done
done
exit "$failed"
