#!/bin/bash
# Puts what the hardware checks of commpool.torch need into one folder, for a GPU machine without Bazel: the optimised
# library, the Python package with the router's sources, the checks. There, `DIR/run` runs them.
# usage: tests/torch/hardware_bundle.sh DIR [TORCH...]
#   TORCH  a wheel of torch, or an unpacked one: adds the router's binary for it, as tools/wheel makes it, and that
#          wheel, for `run wheel`. Others are compiled there.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '/^# usage/,/^set/s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) echo "hardware_bundle.sh: $1 is no folder, --help tells how to call it" >&2; exit 2 ;;
esac
folder=$(realpath -m "${1:?usage: hardware_bundle.sh DIR [TORCH...]}")
shift
torches=()
(($# == 0)) || mapfile -t torches < <(realpath "$@")
source "$(dirname "${BASH_SOURCE[0]}")/../../tools/common.sh"
readonly folder limit_mib=20
readonly package=$folder/python/commpool

"${bazel[@]}" build "${first_build[@]}" --noshow_progress "$library" //src/python:package @cuda//:files \
  //tools/bazel/portable:all
outputs=$("${bazel[@]}" info -c opt bazel-bin 2>/dev/null)

rm -rf "$folder"
mkdir -p "$package/lib" "$package/torch/router/"{src/torch,src/library/pool/scopes,include/commpool}
(cd src/python && find commpool \( -name '*.py' -o -name '*.c' -o -name '*.cc' -o -name py.typed \) \
  -exec cp --parents '{}' "$folder/python/" ';')
cp --dereference "$outputs/src/python/commpool/"{_abi.py,_fast.abi3.so} "$package/"
cp --dereference "$(built "$library")" "$package/lib/"
chmod -R u+w "$folder"
strip --strip-unneeded "$package/lib/libcommpool.so.0"
cp src/torch/*.{cc,h} "$package/torch/router/src/torch/"
cp src/library/pool/scopes/plan.h "$package/torch/router/src/library/pool/scopes/"
cp include/commpool/*.h "$package/torch/router/include/commpool/"
cp -r "$package/torch/router/include" "$package/"
for torch in "${torches[@]}"; do
  mkdir -p "$package/torch/lib"
  python3 -B tools/packaging/torch_router.py --source . --torch "$torch" --output "$package/torch/lib" \
    --older "$(built //tools/bazel/portable:older)" \
    --cuda "$("${bazel[@]}" info output_base 2>/dev/null)/external/cuda/include"
done
headers=()
for torch in "${torches[@]}"; do headers+=(--torch-headers "$torch"); done
((${#torches[@]} == 0)) || tools/wheel "${headers[@]}" "$folder/wheel"
mkdir -p "$folder/tests"
cp tests/python/torch/*.py tests/torch/*.py "$folder/tests/"
cp -r --parents examples/python tools/others tools/suites "$folder/"
cp tests/torch/hardware_run.sh "$folder/run"

size=$(du --summarize --block-size=1M "$folder" | cut -f 1)
((size < limit_mib)) || fail "$folder has $size MiB, over $limit_mib"
echo "$folder: $size MiB; start it with $folder/run"
