#!/bin/bash
# Runs the hardware checks of commpool.torch from the folder that hardware_bundle.sh made. Needs python3 with torch, its
# NCCL, g++ and a CUDA driver. Results go into RESULTS (default: results beside this file).
# usage: run [facts] [times] [steps] [ranks] [fsdp] [ddp] [decode]      (default: all)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
readonly results=${RESULTS:-$PWD/results}
mkdir -p "$results"
export PYTHONPATH=$PWD/python:$PWD/tests COMMPOOL_CACHE=${COMMPOOL_CACHE:-$PWD/cache} COMMPOOL_DRIVER=cuda
# NVLink multicast stays off in all that it starts: where a switch says otherwise it refuses to begin.
for switch in NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1; do
  name=${switch%%=*}
  export "$name=${!name-${switch#*=}}"
  [[ ${!name} == "${switch#*=}" ]] || { echo "run: refused: $name has to be ${switch#*=}" >&2; exit 3; }
done
# Such as 4xH200, for the names of records of several GPUs.
machine=$(nvidia-smi -L 2>/dev/null | wc -l)x$(nvidia-smi -L 2>/dev/null | sed -n '1s/.*NVIDIA \([A-Za-z0-9]*\).*/\1/p')
failed=0

part() {
  echo "== $1"
  "${@:2}" 2>&1 | tee "$results/$1.txt"
  ((PIPESTATUS[0] == 0)) || { echo "== $1 FAILED"; failed=1; }
}

for name in "${@:-facts times steps ranks fsdp ddp decode}"; do
  for word in $name; do
    case $word in
      facts) part facts python3 tests/hardware_check.py ;;
      times) part times python3 tests/hardware_times.py --record "$results/torch.jsonl" ;;
      steps) part steps python3 tests/hardware_steps.py --record "$results/torch.jsonl" ;;
      ranks) part ranks python3 tests/hardware_ranks.py --record "$results/torch.jsonl" ;;
      fsdp | ddp | decode)
        part "$word" python3 "tests/hardware_$word.py" --record "$results/torch-$word-$machine.jsonl"
        ;;
      *) echo "run: $word is none of facts, times, steps, ranks, fsdp, ddp, decode" >&2; exit 2 ;;
    esac
  done
done
exit "$failed"
