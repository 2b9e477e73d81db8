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

count_gpus() { { nvidia-smi --list-gpus 2>/dev/null || true; } | grep -c '^GPU' || true; }
