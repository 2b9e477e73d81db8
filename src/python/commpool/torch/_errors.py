"""Out-of-memory errors that are also PyTorch's, once torch is in use."""

from __future__ import annotations

import torch

from commpool import StatusCode, errors


class OutOfMemory(errors.OutOfMemory, torch.OutOfMemoryError, code=StatusCode.OUT_OF_MEMORY):
    """Every call of commpool raises this instead of `commpool.OutOfMemory` from now on."""


class Exhausted(errors.Exhausted, torch.OutOfMemoryError, code=StatusCode.EXHAUSTED):
    """The same for `commpool.Exhausted`."""
