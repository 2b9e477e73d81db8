"""The real PyTorch beside other libraries: examples/python/torch_and_cupy.py and the page's program, with a stand-in
for CuPy, which needs the real driver; and PyTorch's own cache, which a pool asks when it finds no memory.
"""

import os
import unittest

import libraries
from on_emulator import printed_by

_EXAMPLE = "examples/python/torch_and_cupy.py"
_STAND_INS = os.path.abspath("tests/python/libraries/stand_ins")
_LINES = """both bytes: current 1200, peak 1200, total 1200
both count: current 2, peak 2, total 2
without the array bytes: current 400, peak 1200, total 1200
without the array count: current 1, peak 2, total 2
with another tensor bytes: current 800, peak 1200, total 2000
with another tensor count: current 1, peak 2, total 3
"""
# Without commpool.torch, because its router offers the cache itself.
_HOLDER = """
import torch
import commpool
import commpool.holders

tensor = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
del tensor  # PyTorch's cache keeps it
pool = commpool.Pool("hungry")
with commpool.holders.add_torch() as holder:
    pool.allocate("2GiB").free()
    print(holder.asked, holder.released_bytes >> 30, torch.cuda.memory_reserved())
    import commpool.torch
    if commpool.torch.install():
        tensor = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        del tensor
        pool.allocate("3GiB").free()  # the router gives
        print(holder.asked, commpool.holders.add_torch())
"""
# CUDA's runtime, of which RMM's resources are set, is linked into RMM, and needs the real driver.
_PAGE = """
import sys
from unittest import mock

sys.path.append("tests/python/torch")
import libraries, torch, routed, commpool, commpool.cupy, cupy

libraries.add()
import commpool.numba, commpool.rmm, numba.cuda, rmm

with mock.patch.object(rmm.mr, "set_current_device_resource") as put:
    names = routed.run_of_page("reference.md", 'pool = commpool.Pool("shared",', commpool=commpool, cupy=cupy, rmm=rmm)
kept = [torch.empty(1, device="cuda"), cupy.ALLOCATOR[0](1), rmm.DeviceBuffer(size=1, mr=put.call_args[0][0]),
        numba.cuda.device_array(1, "uint8")]
print(names["pool"].stats().allocated_blocks.current)
"""


class TwoLibraries(unittest.TestCase):
    def check(self, wanted, *words, paths=(), **variables):
        """What a program prints, with these folders too to import from."""
        self.assertEqual(printed_by(*words, PYTHONPATH=":".join([os.environ["PYTHONPATH"], *paths]), **variables,
                                    COMMPOOL_LIBRARY=os.path.abspath("src/library/c_api/libcommpool.so.0")), wanted)

    def test_count_in_one_statistic(self):
        self.check(_LINES, _EXAMPLE, paths=[_STAND_INS])

    @libraries.needed
    def test_and_more_share_a_pool_in_the_program_of_the_page(self):
        self.check("4\n", "-c", _PAGE, paths=[_STAND_INS, os.path.dirname(_STAND_INS)])

    def test_give_each_other_what_they_do_not_use(self):
        self.check("1 3 0\n1 None\n", "-c", _HOLDER, COMMPOOL_EMULATOR="memory=4GiB")
