#!/bin/bash
# Builds PyTorch's caching allocator with a C face, for --torch-library of `commpool bench hot` and `commpool replay`.
# Needs python3 with torch, g++ and the headers of the CUDA toolkit.
# usage: build_torch_allocator.sh [LIBRARY]      (default: libtorch_allocator.so)
set -euo pipefail

readonly library=${1:-libtorch_allocator.so}
readonly source=$(dirname "${BASH_SOURCE[0]}")/torch_allocator.cc

mapfile -t folders < <(python3 - <<'PYTHON'
import os
import torch
from torch.utils import cpp_extension
print(int(torch.compiled_with_cxx11_abi()))
print(os.path.join(os.path.dirname(torch.__file__), "lib"))
for folder in cpp_extension.include_paths("cuda"):
    print(folder)
PYTHON
)
((${#folders[@]} > 2)) || { echo "build_torch_allocator.sh: python3 has no torch" >&2; exit 1; }
includes=()
for folder in "${folders[@]:2}" /usr/local/cuda/include; do includes+=(-isystem "$folder"); done
# A folder that is not there is no failure.
places=("${folders[1]}/../../nvidia" /usr/local/cuda/lib64)
runtime=$(find "${places[@]}" -name 'libcudart.so.1*' 2>/dev/null | head -n 1 || true)
[[ -n $runtime ]] || { echo "build_torch_allocator.sh: no libcudart.so.1x beside torch" >&2; exit 1; }

g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -D_GLIBCXX_USE_CXX11_ABI="${folders[0]}" "${includes[@]}" \
  "$source" -o "$library" -L"${folders[1]}" -Wl,-rpath,"${folders[1]}" -lc10_cuda -lc10 \
  "$runtime" -Wl,-rpath,"$(dirname "$runtime")"
echo "$library"
