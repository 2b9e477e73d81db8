"""NCCL's own log shows what NCCL ran. Programs that are a rank import this before torch."""

import os
import pathlib
import re
import tempfile

LOG = pathlib.Path(tempfile.gettempdir()) / f"commpool-nccl-{os.getpid()}.log"
os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,REG,TUNING,NVLS", NCCL_DEBUG_FILE=str(LOG))

import torch  # noqa: E402

_KERNEL = re.compile(r"AllReduce( \[Symmetric\])?: (\d+) Bytes -> (?:Kernel (\S+)|Algo (\S+))")


def log():
    """The whole log so far."""
    return LOG.read_text(errors="replace") if LOG.exists() else ""


def all_reduces_of(work):
    """What NCCL ran meanwhile: bytes, whether it was symmetric, and the kernel or algorithm. Only rank 0's log has
    it."""
    torch.cuda.synchronize()
    before = len(log())
    work()
    torch.cuda.synchronize()
    return [(int(nbytes), bool(symmetric), kernel or algorithm)
            for symmetric, nbytes, kernel, algorithm in _KERNEL.findall(log()[before:])]
