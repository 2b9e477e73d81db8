"""Whether NCCL uses NVLink multicast (NVLS) for tensors made in `commpool.torch.tp`: for a machine that allows it.

NCCL_NVLS_ENABLE=1 PYTHONPATH=python:tests python3 tests/hardware_nvls.py

Skipped, with the reason, unless NCCL_NVLS_ENABLE says that multicast may be used here; `run` switches it off. Half a
minute on 3 GPUs or more: the proof is NCCL's own log, whose kernels of multicast have MC in their names.
"""

import os
import pathlib
import sys


def why_not():
    """Empty where multicast may be used."""
    setting = os.environ.get("NCCL_NVLS_ENABLE", "")
    if setting == "0":
        return "NCCL_NVLS_ENABLE is 0: NVLink multicast is switched off here"
    return "" if setting in ("1", "2") else "NCCL_NVLS_ENABLE is not set: 1 says that NVLink multicast may be used here"


def judged(said):
    """One line for each case and kind of tensor; whether all hold."""
    holds = True
    for case, ranks in said.items():
        kernels = {where: [name for _, name in ranks[0][where]["kernels"]] for where in ("inside", "outside")}
        eligible = all(rank["inside"]["eligible"][0] for rank in ranks)
        multicast = bool(kernels["inside"]) and all("MC" in name for name in kernels["inside"])
        plain = not any(rank["outside"]["eligible"][0] for rank in ranks)
        for word, right in (("eligible on all ranks", eligible), ("by multicast kernels", multicast),
                            ("not so what torch makes by itself", plain)):
            print(f"{case}: {word}: {'passed' if right else 'failed'}")
            holds = holds and right
        print(f"{case}: kernels {kernels}", flush=True)
    return holds


def main():
    reason = why_not()
    if not reason:
        import torch

        ranks = min(8, torch.cuda.device_count())
        reason = "" if ranks > 2 else f"NVLS needs 3 GPUs, and here are {ranks}"
    if reason:
        print(f"skipped: {reason}", flush=True)
        return 0
    from rank_processes import said_by_ranks

    ranks_program = pathlib.Path(__file__).with_name("nvls_ranks.py")
    return 0 if judged(said_by_ranks(ranks_program, ranks=ranks, seconds=120)) else 1


if __name__ == "__main__":
    sys.exit(main())
