"""Values that programs write: they work, or the error names them."""

import unittest

import torch

from routed import MIB, RoutedCase, commpool, tensor


class Devices(RoutedCase):
    def test_without_a_number_are_torchs_current_one(self):
        number = self.needs_device(1)
        with torch.cuda.device(number):
            for device in ("cuda", torch.device("cuda"), None):
                pool = self.pool(device=device)
                self.assertEqual(pool.device, number)
                with commpool.use_pool(pool, device="cuda"):
                    self.assert_in(pool, tensor(MIB, number))
                self.assertEqual(commpool.empty(4, device=device).device, number)
        self.assertEqual(self.pool(device="cuda").device, 0)

    def test_that_are_not_cudas_are_refused(self):
        for device in ("cpu", "meta", torch.device("cpu"), torch.device("meta")):
            with self.assertRaisesRegex(commpool.InvalidArgument, "device .* is no CUDA device"):
                commpool.Pool(device=device)


if __name__ == "__main__":
    unittest.main()
