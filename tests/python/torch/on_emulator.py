"""Shared by tests with the real PyTorch: a report of the emulator fails the test that caused it."""

import concurrent.futures
import ctypes
import os
import subprocess
import sys
import threading
import unittest


def _driver():
    return ctypes.CDLL("libcuda.so.1")  # preloaded


def reports():
    """The broken rules that the emulator has reported since the last call, one line each."""
    driver = _driver()
    buffer = ctypes.create_string_buffer(1 << 20)
    driver.commpoolEmulatorReports.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    driver.commpoolEmulatorReports(buffer, len(buffer))
    driver.commpoolEmulatorClearReports()
    return buffer.value.decode().splitlines()


def run_python(*words, **environment):
    """Runs a program in a process of its own, with these variables too. Returns what it said, and its exit code."""
    return subprocess.run([sys.executable, "-B", *words], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300, check=False)


def printed_by(*words, **environment):
    """What a program prints, which must exit with 0 and break no rule."""
    run = run_python(*words, **environment)
    if run.returncode or "broken rule" in run.stderr:
        raise AssertionError(f"a program ended with {run.returncode}:\n{run.stdout}\n{run.stderr}")
    return run.stdout


def on_threads(*functions):
    """Calls each function on a thread of its own, all at once; returns their results."""
    together = threading.Barrier(len(functions))

    def call(function):
        together.wait()
        return function()

    with concurrent.futures.ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(call, functions))


def blocks_of(segments):
    """The blocks of a snapshot's segments, by address, of which each has one."""
    blocks = [block for segment in segments for block in segment["blocks"]]
    by_address = {block["address"]: block for block in blocks}
    if len(by_address) < len(blocks):
        raise AssertionError(f"a snapshot shows an address twice: {sorted(block['address'] for block in blocks)}")
    return by_address


def keep_operations():
    """Gives programs of another cache, or of a compiler that fails, the operations of this test's own PyTorch on the
    emulator; a GPU has its own."""
    if os.environ.get("COMMPOOL_DRIVER") != "emulated":
        return
    os.environ["COMMPOOL_EMULATOR_TORCH"] = printed_by("-c", """
import torch
torch.ones(1, device="cuda")
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/operations-" in line))
""").strip()


def calls(function):
    """How often this process called a driver function."""
    count = _driver().commpoolEmulatorCallCount
    count.argtypes, count.restype = [ctypes.c_char_p], ctypes.c_uint64
    return count(function.encode())


class EmulatorCase(unittest.TestCase):
    """A case that fails if the emulator, where it is the driver, reports what hardware would leave undefined."""

    def tearDown(self):
        if os.environ.get("COMMPOOL_DRIVER") == "emulated":
            self.assertEqual(reports(), [])
