#!/bin/bash
# Builds RMM's pool and arena with a C face, for `commpool replay --peers rmm-pool,rmm-arena --rmm-library FILE`.
# WHEELS is a folder in which the wheels librmm-cu13 and rapids-logger are unpacked (pip install --target does). Needs
# g++ with C++20 and the headers and libcudart of CUDA 13, of a toolkit or of a wheel (CUDA_HOME).
# usage: build_rmm_allocator.sh WHEELS [LIBRARY]      (default: librmm_allocator.so)
set -euo pipefail

(($# > 0)) || { sed -n 's/^# usage: //p' "$0" >&2; exit 1; }
wheels=$(cd "$1" && pwd)
readonly wheels library=${2:-librmm_allocator.so} home=${CUDA_HOME:-/usr/local/cuda}
readonly source=$(dirname "${BASH_SOURCE[0]}")/rmm_allocator.cc
[[ -d $wheels/librmm/include/rmm ]] || { echo "build_rmm_allocator.sh: no librmm in $wheels" >&2; exit 1; }
runtime=$(find "$home/lib64" "$home/lib" -name 'libcudart.so.1*' 2>/dev/null | head -n 1 || true)
[[ -n $runtime ]] || { echo "build_rmm_allocator.sh: no libcudart.so.1x in $home" >&2; exit 1; }

includes=()
for folder in librmm/include librmm/include/rapids rapids_logger/include; do
  includes+=(-isystem "$wheels/$folder")
done
includes+=(-isystem "$home/include")
libraries=("$wheels/librmm/lib64" "$wheels/rapids_logger/lib64")
g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE \
  "${includes[@]}" "$source" -o "$library" "${libraries[@]/#/-L}" "${libraries[@]/#/-Wl,-rpath,}" \
  -lrmm -lrapids_logger "$runtime" -Wl,-rpath,"$(dirname "$runtime")"
echo "$library"
