"""Shared by tests with the real PyTorch: a report of the emulator fails the test that caused it."""

import ctypes
import os
import subprocess
import sys
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


def keep_operations():
    """Gives programs of another cache, or of a compiler that fails, the operations of this test's own PyTorch."""
    program = """
import torch
torch.ones(1, device="cuda")
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/operations-" in line))
"""
    made = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    os.environ["COMMPOOL_EMULATOR_TORCH"] = made.stdout.strip()


def calls(function):
    """How often this process called a driver function."""
    count = _driver().commpoolEmulatorCallCount
    count.argtypes, count.restype = [ctypes.c_char_p], ctypes.c_uint64
    return count(function.encode())


class EmulatorCase(unittest.TestCase):
    """A case that fails if the emulator reports what hardware would leave undefined."""

    def tearDown(self):
        self.assertEqual(reports(), [])
