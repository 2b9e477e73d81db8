"""Arrays of commpool as tensors of the real PyTorch, without a copy and without commpool.torch."""

import gc
import importlib.util
import os
import unittest

import torch

LIBRARY = os.path.abspath("src/library/c_api/libcommpool.so.0")  # below the root of Bazel's runfiles
if os.path.exists(LIBRARY):
    os.environ.setdefault("COMMPOOL_LIBRARY", LIBRARY)

import commpool  # noqa: E402
from on_emulator import EmulatorCase  # noqa: E402

# Another device than the current one, if there is one.
LAST = min(2, torch.cuda.device_count() - 1)
DEVICE = min(1, LAST)


class Exchange(EmulatorCase):
    def setUp(self):
        self.pool = commpool.Pool("exchanged", device=DEVICE, reserve="8MiB")

    def live(self):
        gc.collect()
        return self.pool.stats().allocated_blocks.current

    def test_by_dlpack_keeps_type_place_and_content(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            array = commpool.empty((2, 3), dtype, pool=self.pool)
            tensor = torch.from_dlpack(array)
            self.assertEqual((tensor.dtype, tensor.device, tuple(tensor.shape), tensor.data_ptr()),
                             (dtype, torch.device("cuda", DEVICE), (2, 3), array.pointer))
            tensor.fill_(7)
            del array
            self.assertEqual(tensor.tolist(), [[7] * 3] * 2)
            self.assertEqual(self.live(), 1)
            del tensor
            self.assertEqual(self.live(), 0)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "this environment has no NumPy")
    def test_by_dlpack_to_numpy_is_refused_and_loses_nothing(self):
        import numpy

        with self.assertRaisesRegex((BufferError, RuntimeError), "[Dd]evice"):
            numpy.from_dlpack(commpool.empty(1 << 20, "uint8", pool=self.pool))
        self.assertEqual(self.live(), 0)

    def test_by_cuda_array_interface_keeps_place_and_content(self):
        array = commpool.empty(5, "float64", pool=self.pool)
        tensor = torch.as_tensor(array, device=torch.device("cuda", DEVICE))
        self.assertEqual(tensor.data_ptr(), array.pointer)
        self.assertEqual(tensor.fill_(2).tolist(), [2.0] * 5)

    def test_orders_streams(self):
        stream = torch.cuda.Stream(device=DEVICE)
        with torch.cuda.stream(stream):
            array = commpool.empty(1 << 20, "uint8", pool=self.pool, stream=stream)
            torch.as_tensor(array, device=torch.device("cuda", DEVICE)).fill_(3)
        tensor = torch.from_dlpack(array)  # for the current stream, which differs
        self.assertEqual(tensor.fill_(4)[-1].item(), 4)
        del tensor, array
        with torch.cuda.stream(stream):
            again = commpool.empty(1 << 20, "uint8", pool=self.pool, stream=stream)
            self.assertEqual(torch.as_tensor(again, device=torch.device("cuda", DEVICE)).fill_(5)[0].item(), 5)

    def test_streams_and_tensors_are_taken_as_they_are(self):
        stream = torch.cuda.Stream(device=DEVICE)
        buffer = self.pool.allocate("1MiB", stream)
        self.assertEqual(buffer.stream, stream.cuda_stream)
        tensor = torch.from_dlpack(commpool.empty(512, pool=self.pool))
        commpool.record_stream(tensor, stream)
        self.assertEqual(commpool.block_of(tensor).pool, self.pool.handle)
        self.assertEqual(commpool.Pool(device=torch.device("cuda", LAST)).device, LAST)
        buffer.free()
        commpool.release_stream(stream)
