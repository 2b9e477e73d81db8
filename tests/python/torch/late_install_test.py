"""Settings from before the router came hold for our pools too. This process installs the router late."""

import ctypes
import inspect
import unittest

import torch

from on_emulator import blocks_of
from routed import MIB, RoutedCase, commpool, tensor, tensor_in

import commpool as plain  # routed has set where it finds its library


def make_in_late_install_test():
    return tensor(3 * MIB)


def reaches(device, of_tensor):
    """Whether the driver lets a kernel on the device read the tensor."""
    address, attribute = ctypes.c_uint64(), 3  # the address for the current device; the driver refuses if there is none
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # CUDA makes the device current at its first call
        return ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(address), attribute,
                                                                 ctypes.c_uint64(of_tensor.data_ptr())) == 0


class LateInstall(RoutedCase):
    """The tensors, peers, fraction and history here are older than the router."""

    @classmethod
    def setUpClass(cls):
        cls.older = torch.arange(6.0).reshape(2, 3).to("cuda:0")
        cls.devices = torch.cuda.device_count()
        if cls.devices > 1:
            # Not a plain copy: a kernel on one device writes to the other, so torch makes that a peer, once.
            cls.older_copy = torch.empty(3, 2, device="cuda:1").copy_(cls.older.t())
        cls.of_no_peer = [torch.empty(1, device=f"cuda:{device}") for device in range(2, cls.devices)]
        cls.total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(0.01, 0)
        record = torch.cuda.memory._record_memory_history
        pinned = {"record_pinned_host_memory": True}
        cls.records_pinned = pinned.keys() <= inspect.signature(record).parameters.keys()
        record(max_entries=1000, **(pinned if cls.records_pinned else {}))
        cls.recorded = make_in_late_install_test()
        cls.was_installed = commpool.installed()
        cls.has_router = commpool.install()

    @classmethod
    def tearDownClass(cls):
        torch.cuda.memory._record_memory_history(None)

    def setUp(self):
        self.assertFalse(self.was_installed)
        if not self.has_router:
            self.skipTest("there is no router and no compiler")

    def test_leaves_older_tensors_to_torch(self):
        self.assert_native(self.older)
        before = torch.cuda.memory_allocated()
        type(self).recorded = None
        self.assertEqual(torch.cuda.memory_allocated(), before - 3 * MIB)

    def check_copies(self, pool, scope):
        with scope:
            ours = torch.empty(3, 2, device="cuda:1")
        self.assert_in(pool, ours)
        ours.copy_(self.older.t())
        self.assertEqual(ours.tolist(), [[0, 3], [1, 4], [2, 5]])
        back = torch.empty(2, 3, device="cuda:0").copy_(ours.t())
        self.assertEqual(back.tolist(), self.older.tolist())

    @unittest.skipIf(torch.cuda.device_count() < 2, "two devices are needed")
    def test_grants_pools_to_devices_that_are_peers_already(self):
        pool = self.pool(device=1)
        self.check_copies(pool, commpool.use_pool(pool))

    @unittest.skipIf(torch.cuda.device_count() < 2, "two devices are needed")
    def test_grants_pools_that_serve_by_scopes_of_the_library_s_own(self):
        pool = plain.Pool(device=1)
        self.addCleanup(pool.destroy)
        self.check_copies(pool, plain.use_pool(pool))

    @unittest.skipIf(torch.cuda.device_count() < 2, "two devices are needed")
    def test_lets_peers_read_a_pool_that_grants_no_more(self):
        pool = self.pool(device=1, grants="read")
        with commpool.use_pool(pool):
            ours = torch.empty(2, 3, device="cuda:1")
        self.assertEqual([pool.access_of(device) for device in (0, 1)], ["read", "read-write"])
        ours.copy_(self.older)
        back = torch.empty(2, 3, device="cuda:0").copy_(ours)
        self.assertEqual(back.tolist(), self.older.tolist())

    @unittest.skipIf(torch.cuda.device_count() < 3, "three devices are needed")
    def test_grants_nothing_to_devices_that_torch_made_no_peers(self):
        pool = self.pool(device=1)
        with commpool.use_pool(pool):
            ours = torch.empty(1, device="cuda:1")
        self.assertEqual([reaches(device, ours) for device in range(3)], [True, True, False])

    def test_holds_pools_to_the_fraction(self):
        pool = self.pool(device=0)
        self.assertRaises(torch.OutOfMemoryError, tensor_in, pool, self.total // 50)
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
        self.assert_serves(pool, self.total // 50)

    def test_records_pools_in_the_history(self):
        pool = self.pool(device=0)
        with commpool.use_pool(pool):
            ours, address = make_in_late_install_test(), tensor(MIB).data_ptr()
        native = make_in_late_install_test()
        snapshot = torch.cuda.memory._snapshot()
        for of_either in (ours, native):
            frames = blocks_of(snapshot["segments"])[of_either.data_ptr()]["frames"]
            self.assertIn("make_in_late_install_test", [frame["name"] for frame in frames])
        trace = snapshot["device_traces"][0]
        self.assertEqual([event["action"] for event in trace if event.get("addr") == address],
                         ["alloc", "free_requested", "free_completed"])
        self.assertIn("segment_alloc", [event["action"] for event in trace], "torch's own goes on")
        if self.records_pinned:
            pinned = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
            self.assertIn(pinned.data_ptr(), [event.get("addr") for event in
                                              torch.cuda.memory._snapshot()["host_traces"]])
