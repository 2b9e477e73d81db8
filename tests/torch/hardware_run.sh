#!/bin/bash
# Runs the hardware checks of commpool.torch from the folder that hardware_bundle.sh made. Needs python3 with torch, its
# NCCL, g++ and a CUDA driver, and transformers for what trains a Llama. Results go into RESULTS (default: results
# beside this file).
# usage: run [wheel] [facts] [times] [steps] [ranks] [fsdp] [ddp] [decode] [peers] [examples]
#   [recording] [pinned] [sleep] [sharing] [registrars] [nvls] [races] [graphs] [rl] [starve] [soak]
# Without a word: all.
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
# NIXL's package, where nixl_bundle.py has put it here.
[[ ! -f nixl.tar.gz ]] || tar -xzf nixl.tar.gz -C python || exit 1
# Such as H200, and 4xH200 for the names of records of several GPUs.
model=$(nvidia-smi -L 2>/dev/null | sed -n '1s/.*NVIDIA \([A-Za-z0-9]*\).*/\1/p')
machine=$(nvidia-smi -L 2>/dev/null | wc -l)x$model
failed=0

# part NAME SECONDS FILE [OPTION...]: none takes longer than that, whatever hangs.
part() {
  echo "== $1"
  timeout --kill-after=10 "$2" python3 "tests/$3" "${@:4}" 2>&1 | tee "$results/$1.txt"
  ((PIPESTATUS[0] == 0)) || { echo "== $1 FAILED"; failed=1; }
}

readonly parts='wheel facts times steps recording ranks fsdp ddp decode peers examples pinned sleep
  sharing registrars nvls races graphs rl starve soak'
for name in "${@:-$parts}"; do
  for word in $name; do
    case $word in
      wheel) part wheel 240 hardware_wheel.py ;;
      facts) part facts 600 hardware_check.py ;;
      times) part times 300 hardware_times.py --record "$results/torch-$model.jsonl" ;;
      steps) part steps 420 hardware_steps.py --record "$results/torch-$model.jsonl" ;;
      recording) part recording 300 hardware_recording.py --record "$results/torch-recording-$model.jsonl" ;;
      ranks) part ranks 240 hardware_ranks.py --record "$results/torch-$machine.jsonl" ;;
      fsdp | ddp | decode | peers | examples)
        part "$word" 300 "hardware_$word.py" --record "$results/torch-$word-$machine.jsonl"
        ;;
      pinned) part pinned 400 hardware_pinned.py --record "$results/torch-pinned-$model.jsonl" ;;
      sleep) part sleep 400 hardware_sleep.py --record "$results/sleep-$model.jsonl" ;;
      sharing) part sharing 600 hardware_sharing.py --record "$results/torch-sharing-$model.jsonl" ;;
      registrars) part registrars 300 hardware_registrars.py --record "$results/torch-registrars-$machine.jsonl" ;;
      nvls) part nvls 60 hardware_nvls.py ;;
      graphs) part graphs 120 hardware_graphs.py --record "$results/torch-graphs-$model.jsonl" ;;
      rl) part rl 240 hardware_rl.py headroom --record "$results/torch-rl-$model.jsonl" ;;
      starve) part starve 600 hardware_starve.py --record "$results/torch-starve-$machine.jsonl" ;;
      soak) part soak 720 hardware_soak.py --record "$results/torch-soak-$machine.jsonl" ;;
      races) part races 120 hardware_races.py --record "$results/torch-$model.jsonl" ;;
      *)
        echo "run: $word is no part; these are: $parts" >&2
        exit 2
        ;;
    esac
  done
done
exit "$failed"
