# What the scripts in this folder share; sourced, never run. It leaves the shell in the repository's root.
#   BAZEL   the command to call Bazel with, its start-up options included (default: bazel)

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# A link that another output base left would be taken for a folder of ours by `//...`; Bazel makes its own anew.
rm -f "bazel-${PWD##*/}"
read -r -a bazel <<<"${BAZEL:-bazel}"

fail() { echo "${0##*/}: $*" >&2; exit 1; }

# Options of mpirun that depend on where it runs: root is refused without being told, and so are few cores.
mpirun_options=(--oversubscribe)
if [[ $(id -u) == 0 ]]; then mpirun_options+=(--allow-run-as-root); fi

# Options of Bazel that say for which machine: none for this one, `--config=aarch64` (tools/wheel --aarch64).
machine=()

# Sandboxes find files that a target does not declare: a matter of tests, not of a first build that somebody waits for.
readonly first_build=(-c opt --spawn_strategy=local)

# Those that CUDA_VISIBLE_DEVICES leaves, where it is set: the names before the first that is none.
count_gpus() {
  local all names name count=0
  all=$({ nvidia-smi --list-gpus 2>/dev/null || true; } | grep -c '^GPU' || true)
  [[ -n ${CUDA_VISIBLE_DEVICES+set} ]] || { echo "$all"; return; }
  IFS=, read -r -a names <<<"$CUDA_VISIBLE_DEVICES"
  for name in "${names[@]}"; do
    [[ $name == [GM]* || ($name =~ ^[0-9]+$ && $name -lt $all) ]] || break
    count=$((count + 1))
  done
  echo "$count"
}

# ---- Install trees (tools/install, tools/bundle) ----

readonly cli=//tools/cli:commpool library=//src/library/c_api:libcommpool.so.0
readonly emulated=(
  //src/emulator/cuda:libcuda.so.1 //src/emulator/cudart:libcudart.so.13 //src/emulator/nccl:libnccl.so.2
  //src/emulator/nvml:libnvidia-ml.so.1
)
readonly interpose=//src/interpose/audit:libcommpool_interpose.so

# What an install tree holds, and targets of the caller's. Sets where Bazel has put them, and `tree_files`: the same as
# options of the scripts in tools/packaging.
build_for_installation() {
  local log
  log=$(mktemp)
  echo "building (the first time takes a few minutes)"
  if ! "${bazel[@]}" build "${machine[@]}" "${first_build[@]}" -- \
    "$cli" "$library" "${emulated[@]}" "$interpose" "$@" >"$log" 2>&1; then
    cat "$log"
    fail "the build failed"
  fi
  rm -f "$log"
  outputs=$("${bazel[@]}" info "${machine[@]}" -c opt bazel-bin 2>/dev/null)
  tree_files=(
    --source . --library "$(built "$library")" --cli "$(built "$cli")" --cuda "$(built "${emulated[0]}")"
    --cudart "$(built "${emulated[1]}")" --nccl "$(built "${emulated[2]}")"
    --nvml "$(built "${emulated[3]}")" --interpose "$(built "$interpose")"
  )
}

# built LABEL: its file.
built() {
  local path=${1#//}
  echo "$outputs/${path/://}"
}

# install_tree FOLDER [OPTION...]
install_tree() {
  python3 tools/packaging/install_tree.py --prefix "$1" "${tree_files[@]}" "${@:2}"
}
