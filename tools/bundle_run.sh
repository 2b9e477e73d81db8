#!/bin/bash
# Runs everything in this folder on the GPUs that are here and ends in a table.
# usage: run [--only PATTERN] [--gpus N] [--timeout SECONDS]
#   COMMPOOL_DRIVER   cuda (default) or emulated
#   OUT               folder for the logs and results (default: ./commpool-results)
# NVLink multicast stays off in all that it starts: it refuses to begin where the three switches below say otherwise.
set -uo pipefail

readonly here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly switches=(NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1)

fail() { echo "run: $*" >&2; exit 3; }

check_switches() {
  local switch name
  for switch in "${switches[@]}"; do
    name=${switch%%=*}
    [[ ${!name-unset} == "${switch#*=}" ]] || fail "refused: $name is ${!name-unset} and has to be ${switch#*=}"
  done
}

# mpirun calls this script again for each rank: what it passed on is checked where it counts.
if [[ ${1:-} == rank ]]; then
  [[ $COMMPOOL_DRIVER == emulated ]] || check_switches
  exec "${@:2}"
fi

only='' gpus='' limit=180
case ${1:-} in -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
while (($#)); do
  (($# > 1)) || fail "$1 is unknown or needs a value (usage: run [--only PATTERN] [--gpus N] [--timeout SECONDS])"
  case $1 in
    --only) only=$2 ;;
    --gpus) gpus=$2 ;;
    --timeout) limit=$2 ;;
    *) fail "unknown option $1" ;;
  esac
  shift 2
done

# A value that somebody set otherwise is refused, not overwritten.
for switch in "${switches[@]}"; do
  name=${switch%%=*}
  export "$name=${!name-${switch#*=}}"
done
export COMMPOOL_DRIVER=${COMMPOOL_DRIVER:-cuda}
[[ $COMMPOOL_DRIVER == emulated ]] || check_switches

find_nccl() {
  local place
  # The wheel that torch brings comes first.
  place=$(python3 -c 'from importlib.util import find_spec
print(list(find_spec("nvidia.nccl").submodule_search_locations)[0])' 2>/dev/null)
  for place in "$place/lib" /usr/lib/x86_64-linux-gnu /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/lib; do
    if [[ -e $place/libnccl.so.2 ]]; then
      echo "$place/libnccl.so.2"
      return
    fi
  done
}

# Those that CUDA_VISIBLE_DEVICES leaves, where it is set: the names before the first that is none.
count_gpus() {
  local all names name count=0
  all=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
  [[ -n ${CUDA_VISIBLE_DEVICES+set} ]] || { echo "$all"; return; }
  IFS=, read -r -a names <<<"$CUDA_VISIBLE_DEVICES"
  for name in "${names[@]}"; do
    [[ $name == [GM]* || ($name =~ ^[0-9]+$ && $name -lt $all) ]] || break
    count=$((count + 1))
  done
  echo "$count"
}

if [[ $COMMPOOL_DRIVER != emulated ]]; then
  there=$(count_gpus)
  : "${gpus:=$there}"
  ((gpus > 0)) || fail "no GPU here (COMMPOOL_DRIVER=emulated runs without)"
  ((gpus <= there)) || fail "$gpus GPUs were asked for, and $there are there for this process"
  export COMMPOOL_NCCL=${COMMPOOL_NCCL:-$(find_nccl)}
  [[ -n $COMMPOOL_NCCL ]] || fail "no libnccl.so.2 found: set COMMPOOL_NCCL to its path"
fi
: "${gpus:=2}"
export COMMPOOL_EMULATOR_LIBRARIES=$here/lib/commpool/emulator GTEST_COLOR=no
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
readonly out=${OUT:-$PWD/commpool-results}
mkdir -p "$out"
# Such as 2xH200, for the names of records.
readonly machine=${gpus}x$([[ $COMMPOOL_DRIVER == emulated ]] && echo emulated ||
  nvidia-smi -L | sed -n '1s/.*NVIDIA \([A-Za-z0-9]*\).*/\1/p')
readonly log=$out/log.txt record=$out/allreduce.json
: >"$log"

mpirun_options=(--oversubscribe --mca btl_vader_single_copy_mechanism none)
if [[ $(id -u) == 0 ]]; then mpirun_options+=(--allow-run-as-root); fi
for switch in "${switches[@]}"; do mpirun_options+=(-x "${switch%%=*}"); done
for name in COMMPOOL_DRIVER COMMPOOL_NCCL COMMPOOL_EMULATOR_LIBRARIES LD_LIBRARY_PATH; do
  [[ -z ${!name:-} ]] || mpirun_options+=(-x "$name")
done

rows=() failures=0

# outcome STATUS FILE: in words; the CLI refuses an impossible combination with its reason.
outcome() {
  local reason cases
  case $1 in
    0)
      # Each rank tells of its cases: one line of each kind is enough.
      cases=$(sed -n 's/^\[  \(PASSED\|SKIPPED\)  *\] \([0-9]\+\) test.*/\2 \L\1/p' "$2" | sort -u | paste -sd ,)
      if [[ $cases == "0 passed,"* ]]; then echo "skipped"; else echo "ok${cases:+ (${cases//,/, })}"; fi
      ;;
    124 | 137) echo "failed: no end after $limit s" ;;
    *)
      reason=$(grep -m 1 -o 'refused:.*' "$2")
      if [[ $1 != 1 && $1 != 2 && -n $reason ]]; then echo "${reason:0:100}"; else echo "failed: status $1"; fi
      ;;
  esac
}

# item NAME COMMAND...
item() {
  local name=$1 start=$SECONDS status result
  shift
  [[ $name == *$only* ]] || return 0
  timeout --kill-after=10 "$limit" "$@" >"$out/last.txt" 2>&1 </dev/null
  status=$?
  result=$(outcome $status "$out/last.txt")
  rows+=("$name"$'\t'"$result"$'\t'"$((SECONDS - start))")
  [[ $result != failed* ]] || failures=$((failures + 1))
  { echo "== $name: $result"; echo "   $*"; cat "$out/last.txt"; } >>"$log"
  echo "$name: $result"
}

# skip NAME WHY
skip() {
  [[ $1 == *$only* ]] || return 0
  rows+=("$1"$'\t'"skipped: $2"$'\t'0)
  echo "$1: skipped: $2"
}

ranks() { item "$1" mpirun "${mpirun_options[@]}" -np "$gpus" "$here/run" rank "${@:2}"; }

is_ranked() { grep -qxF "$1" "$here/ranked.txt"; }

run_folder() {
  local program name
  for program in "$here/$1"/*; do
    [[ -x $program ]] || continue
    name=${program##*/}
    if is_ranked "$name"; then ranks "$1/$name" "$program"; else item "$1/$name" "$program"; fi
  done
}

run_matrix() {
  local backing location register
  for backing in nccl vmm cuda; do
    for location in device host-numa; do
      for register in none local window; do
        if ((gpus == 1)) && [[ $register == window ]]; then
          skip "allreduce/$backing/$location/$register" "one rank has nobody to send to"
          continue
        fi
        ranks "allreduce/$backing/$location/$register" "$here/bin/commpool" allreduce --backing "$backing" \
          --location "$location" --register "$register" --bytes 8K:64M --check --record "$record"
      done
    done
  done
}

# On the emulator wherever it runs, and `order` on the GPUs too; `ranks` judges time and is left to machines that do
# nothing else.
run_stress() {
  local stress=(env COMMPOOL_DRIVER=emulated "$here/stress/commpool_stress")
  item stress/order "${stress[@]}" order --seconds 30
  item stress/order-bytes "$here/stress/commpool_stress" order --seconds 30 --judge bytes
  item stress/registration "${stress[@]}" registration --schedules 500
  item stress/host "${stress[@]}" host --sample 100
}

# A training under `commpool audit`; it takes minutes.
run_audit() {
  local program=("$here/audit/hardware_audit.py" --commpool "$here/bin/commpool" --ranks "$((gpus > 2 ? 2 : gpus))")
  if [[ $COMMPOOL_DRIVER == emulated ]]; then
    skip audit/training "the emulator has no kernels to load"
  elif ! python3 -c 'import torch, transformers' 2>/dev/null; then
    skip audit/training "there is no torch with transformers"
  else
    limit=600 item audit/training python3 "${program[@]}" --record "$out/audit-$machine.jsonl"
  fi
}

# Two blocks of a pool under compute-sanitizer; its words are in the log.
run_overrun() {
  local backing
  if [[ $COMMPOOL_DRIVER == emulated ]]; then
    skip nvtx/overrun "the emulator has no kernels to load"
  elif [[ -z $(type -P compute-sanitizer) ]]; then
    skip nvtx/overrun "there is no compute-sanitizer"
  else
    for backing in vmm cuda; do
      item "nvtx/overrun/$backing" python3 "$here/nvtx/hardware_overrun.py" --program "$here/nvtx/overrun" \
        --backing "$backing"
    done
  fi
}

item info "$here/bin/commpool" info
if [[ info == *$only* ]]; then cat "$out/last.txt"; fi
run_folder tests
run_folder examples
run_stress
run_matrix
ranks advise/under-compute "$here/bin/commpool" advise --under-compute \
  --record "$out/advise-under-compute-$machine.jsonl"
run_overrun
run_audit
rm -f "$out/last.txt"

{
  echo
  "$here/bin/commpool" info 2>/dev/null | head -n 1
  printf '%-48s %8s  %s\n' "on $gpus GPUs ($COMMPOOL_DRIVER)" seconds result
  for row in "${rows[@]}"; do
    IFS=$'\t' read -r name result seconds <<<"$row"
    printf '%-48s %8s  %s\n' "$name" "$seconds" "$result"
  done
  echo "${#rows[@]} run, $failures failed"
} | tee "$out/table.txt"
((failures == 0))
