"""Running out of memory, which is PyTorch's error as well where torch is in use."""

from __future__ import annotations

import torch

from commpool import StatusCode, errors


class OutOfMemory(errors.OutOfMemory, torch.OutOfMemoryError, code=StatusCode.OUT_OF_MEMORY):
    """What every call of commpool raises in place of `commpool.OutOfMemory` from now on."""


class Exhausted(errors.Exhausted, torch.OutOfMemoryError, code=StatusCode.EXHAUSTED):
    """The same of `commpool.Exhausted`."""
