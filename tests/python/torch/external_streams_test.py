"""Streams that the program made (torch.cuda.ExternalStream) may end before the tensors that they made or recorded.
"""

import contextlib
import ctypes

import torch

from routed import MIB, RoutedCase, commpool, tensor, tensor_in

_NON_BLOCKING = 1


@contextlib.contextmanager
def external_stream():
    """Makes a stream torch's current one. Destroys it at the end, while its work still runs."""
    driver, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    if driver.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING) != 0:
        raise RuntimeError("cuStreamCreate failed")
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        yield stream
    if driver.cuStreamDestroy_v2(handle) != 0:
        raise RuntimeError("cuStreamDestroy failed")


class ExternalStreams(RoutedCase):
    """The emulator reports a call that names a dead stream, and an access that is not ordered."""

    def test_may_die_before_what_was_made_on_them(self):
        pool = self.pool()
        for nbytes in (512, 3 * MIB):
            for _ in range(3):
                with external_stream(), commpool.use_pool(pool):
                    held = tensor(nbytes).fill_(1)
                del held
                self.assert_in(pool, tensor_in(pool, nbytes).fill_(2))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(pool.stats().reserved_bytes.current, 0, "nothing waits for a stream that is gone")

    def test_may_die_before_what_was_recorded_on_them(self):
        pool = self.pool()
        for nbytes in (512, 3 * MIB):
            held = tensor_in(pool, nbytes).fill_(1)
            with external_stream() as stream:
                stream.wait_stream(torch.cuda.default_stream())
                held.fill_(2)
                held.record_stream(stream)
            del held
            self.assert_in(pool, tensor_in(pool, nbytes).fill_(3))
        torch.cuda.synchronize()

    def test_are_served_again_while_they_live(self):
        pool = self.pool()
        with external_stream(), commpool.use_pool(pool):
            address = tensor(3 * MIB).data_ptr()
            self.assertEqual(tensor(3 * MIB).data_ptr(), address)
