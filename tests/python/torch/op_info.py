"""Compares PyTorch's own samples of its operations (OpInfo) on the emulator with those on the CPU.

By hand: commpool emulate -- python op_info.py TYPE [STEP [FIRST]], which prints a line for each entry that differs.
"""

import json
import signal
import subprocess
import sys
import types
import unittest
from unittest import mock

import torch
from torch.utils._pytree import tree_leaves, tree_map

_SAMPLES = 4
_SECONDS = 60
# The wheel has no kernel for a GPU.
_NOT_ON_GPUS = ("from the 'CUDA' backend", "from the 'SparseCsrCUDA' backend")


def _entries():
    # Its test cases come from a package that only they need.
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase, __spec__=None))
    from torch.testing._internal.common_methods_invocations import op_db  # pylint: disable=import-outside-toplevel
    return op_db


def _name(entry):
    return entry.name + ("." + entry.variant_test_name if entry.variant_test_name else "")


def _copied(tensor, device):
    """With its gaps, where it is a part of other memory."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().to(device)
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
    return whole.to(device).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _on(device, values):
    def moved(value):
        if isinstance(value, torch.Tensor):
            return _copied(value, device if value.is_cuda else "cpu")
        return device if value in ("cuda", torch.device("cuda"), torch.device("cuda:0")) else value
    return tree_map(moved, values)


def _run(entry, device, sample, seed=0):
    values = _on(device, (sample.input, sample.args, sample.kwargs))
    with mock.patch.object(torch, "manual_seed", lambda _, original=torch.manual_seed: original(seed)):
        torch.manual_seed(seed)  # entries that draw do so too
        result = entry(values[0], *values[1], **values[2])
    return [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]


def _dense(tensor):
    return tensor.values() if tensor.is_nested else tensor.cpu().to_dense()


def _compare(entry, dtype):
    """What is wrong with an entry: empty if nothing is, None if it has no sample."""
    ran = None
    for number, sample in enumerate(entry.sample_inputs("cuda", dtype, requires_grad=False)):
        if number == _SAMPLES:
            break
        try:
            wanted, others = _run(entry, "cpu", sample), _run(entry, "cpu", sample, seed=1)
        except Exception:  # pylint: disable=broad-except
            continue  # the CPU has no kernel for this sample
        found = _run(entry, "cuda", sample)
        torch.cuda.synchronize()
        ran = ""
        for want, other, have in zip(wanted, others, found, strict=True):
            if want.numel() == 0 or "empty" in entry.name:
                continue  # no content, or any
            assert have.shape == want.shape, f"{have.shape} in place of {want.shape}"
            # What is drawn has other values each time. CUDA's statistics of short floats are floats.
            if torch.allclose(_dense(want), _dense(other), equal_nan=True):
                torch.testing.assert_close(_dense(have), _dense(want), equal_nan=True, check_device=False,
                                           check_dtype=dtype == torch.float32)
    return ran


def _stop(*_):
    raise TimeoutError(f"longer than {_SECONDS} seconds")


def _print_entries(type_name, first, step):
    """A line of JSON for each entry, until the device is lost."""
    dtype = getattr(torch, type_name)
    signal.signal(signal.SIGALRM, _stop)
    entries = _entries()
    for number in range(first, len(entries), step):
        entry = entries[number]
        wrong = None
        print(json.dumps([number, _name(entry)]), flush=True)
        if dtype in entry.dtypes and dtype in entry.dtypesIfCUDA:
            signal.alarm(_SECONDS)
            try:
                wrong = _compare(entry, dtype)
            except Exception as error:  # pylint: disable=broad-except
                wrong = f"{type(error).__name__}: {error}"
                wrong = None if any(text in wrong for text in _NOT_ON_GPUS) else wrong
            signal.alarm(0)
        print(json.dumps([number, _name(entry), wrong]), flush=True)
        if wrong:
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                return


def compared(type_name, step, first=0):
    """Yields (name, what is wrong, or None if it was not run) of every `step`th entry."""
    while True:
        run = subprocess.run([sys.executable, "-B", __file__, "--entries", type_name, str(first), str(step)],
                             stdout=subprocess.PIPE, text=True, check=False)
        lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
        for line in lines:
            if len(line) == 3:
                yield line[1], line[2]
        if not lines or (run.returncode == 0 and len(lines[-1]) == 3 and not lines[-1][2]):
            return
        if len(lines[-1]) == 2:
            yield lines[-1][1], f"the process ended with {run.returncode}"
        first = lines[-1][0] + step


def main():
    step, first = (int(word) for word in (sys.argv[2:] + ["1", "0"][len(sys.argv) - 2:]))
    counts = {"right": 0, "wrong": 0, "not run": 0}
    for name, wrong in compared(sys.argv[1], step, first):
        counts["not run" if wrong is None else "wrong" if wrong else "right"] += 1
        if wrong:
            print(name, "|", " ".join(wrong.split())[:300], flush=True)
    print(counts)


if __name__ == "__main__":
    if sys.argv[1] == "--entries":
        _print_entries(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
