"""At the end of a process, and in forked children, nothing crashes and nothing is printed, whatever is alive then."""

import subprocess
import sys
import unittest

import emulated

_START = f"""
import sys
sys.path.insert(0, "{emulated.REPOSITORY}/tests/python")
import emulated, commpool
from backing_test import Recorder
pool = commpool.Pool("user", backing=Recorder().backing)
"""
_EVERYTHING_ALIVE = """
import atexit
buffer = pool.allocate(1000)
array = commpool.empty(1000, device=0)
capsules = [array.__dlpack__(), array.__dlpack__(max_version=(1, 0))]
scope = commpool.use_pool(pool)
scope.__enter__()
holder = commpool.MemoryHolder("other", cached_bytes=lambda device: 0, release=lambda device, count: 0)
cycle = [pool, buffer, *capsules]
cycle.append(cycle)
sys.kept = cycle  # goes when all modules are gone
"""
_FORKED_CHILD = """
import os
buffer = pool.allocate(1000)
if os.fork() == 0:
    try:
        pool.allocate(1000)
    except commpool.FailedPrecondition as error:
        print(error)
    del buffer, pool
    sys.exit()
os.wait()
buffer.free()
print("the parent goes on")
"""


class LastCalls(unittest.TestCase):
    def run_program(self, program):
        result = subprocess.run([sys.executable, "-B", "-c", _START + program], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_a_process_ends_with_everything_alive(self):
        self.assertEqual(self.run_program(_EVERYTHING_ALIVE), "")

    def test_a_forked_child_hears_why_it_may_not_and_its_parent_goes_on(self):
        refused, last = self.run_program(_FORKED_CHILD).splitlines()
        self.assertIn("CUDA does not survive fork()", refused)
        self.assertEqual(last, "the parent goes on")
