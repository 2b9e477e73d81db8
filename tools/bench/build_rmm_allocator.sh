#!/bin/bash
# Builds RMM's pool and arena with a C face, for `commpool replay --peers rmm-pool,rmm-arena --rmm-library FILE`.
# WHEELS is a folder in which the wheels librmm-cu13 and rapids-logger are unpacked (pip install --target does). Needs
# g++ with C++20, and the headers and libcudart of CUDA 13: of CUDA_HOME (/usr/local/cuda), else of NVIDIA's wheels
# (nvidia/cu13), in WHEELS or where python3 finds them. The two need not lie in one place: a toolkit may have the
# headers alone.
# usage: build_rmm_allocator.sh WHEELS [LIBRARY]      (default: librmm_allocator.so)
set -euo pipefail

(($# > 0)) || { sed -n 's/^# usage: //p' "$0" >&2; exit 1; }
fail() { echo "build_rmm_allocator.sh: $*" >&2; exit 1; }
wheels=$(cd "$1" && pwd)
readonly wheels library=${2:-librmm_allocator.so}
readonly source=$(dirname "${BASH_SOURCE[0]}")/rmm_allocator.cc
[[ -d $wheels/librmm/include/rmm ]] || fail "no librmm in $wheels"

# Folders with an include or a lib of CUDA 13, the first is asked first.
homes() {
  echo "${CUDA_HOME:-/usr/local/cuda}"
  echo "$wheels/nvidia/cu13"
  python3 -c '
import importlib.util
found = importlib.util.find_spec("nvidia")
for folder in (found.submodule_search_locations or []) if found else []:
    print(folder + "/cu13")' 2>/dev/null || true
}
mapfile -t homes < <(homes)

runtime=
headers=
for home in "${homes[@]}"; do
  for folder in "$home/lib64" "$home/lib" "$home/targets/x86_64-linux/lib"; do
    [[ -n $runtime ]] || runtime=$(compgen -G "$folder/libcudart.so.13*" | head -n 1 || true)
  done
  [[ -n $headers || ! -f $home/include/cuda_runtime_api.h ]] || headers=$home/include
done
looked_in=$(printf '%s, ' "${homes[@]}")
[[ -n $runtime ]] || fail "no libcudart.so.13 in ${looked_in%, }: set CUDA_HOME, or pip install nvidia-cuda-runtime"
[[ -n $headers ]] || fail "no include/cuda_runtime_api.h in ${looked_in%, }: set CUDA_HOME to a toolkit of CUDA 13"

includes=()
for folder in librmm/include librmm/include/rapids rapids_logger/include; do
  includes+=(-isystem "$wheels/$folder")
done
includes+=(-isystem "$headers")
libraries=("$wheels/librmm/lib64" "$wheels/rapids_logger/lib64")
g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE \
  "${includes[@]}" "$source" -o "$library" "${libraries[@]/#/-L}" "${libraries[@]/#/-Wl,-rpath,}" \
  -lrmm -lrapids_logger "$runtime" -Wl,-rpath,"$(dirname "$runtime")"
echo "$library"
