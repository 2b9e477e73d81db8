"""Device numbers, texts and objects of programs become the ordinals that the library takes."""

import ctypes
import os
import subprocess
import sys
import types

import emulated
import commpool


class Index:
    """For example an integer of NumPy's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def torchs_device(kind, index=None):
    return types.SimpleNamespace(type=kind, index=index)


class Devices(emulated.Case):
    def setUp(self):
        emulated.make_current(0)

    def test_without_a_number_are_the_current_one(self):
        emulated.make_current(2)
        for device in ("cuda", torchs_device("cuda")):
            pool = commpool.Pool(device=device)
            self.assertEqual(pool.device, 2)
            self.assertEqual(commpool.Pool.default(device).device, 2)
            self.assertEqual(commpool.empty(4, device=device).device, 2)
            with commpool.use_pool(pool, device=device):
                self.assertEqual(commpool.block_of(commpool.allocate(512, device=device)).pool, pool.handle)

    def test_without_a_number_nor_a_context_are_the_first(self):
        self.assertEqual(emulated.elsewhere(lambda: commpool.Pool(device="cuda").device), 0)

    def test_tell_their_numbers_as_their_libraries_do(self):
        emulated.make_current(1)
        for device in (2, "cuda:2", Index(2), torchs_device("cuda", 2), types.SimpleNamespace(device_id=2)):
            self.assertEqual(commpool.Pool(device=device).device, 2)
        self.assertEqual(commpool.Pool(device=torchs_device("cuda", 0)).device, 0)

    def test_that_are_no_cuda_devices_are_refused(self):
        for device in ("cpu", "meta", "cuda:", "cuda:x", "", torchs_device("cpu"), torchs_device("meta"),
                       torchs_device("xpu", 0), 1.0, None, [0], object()):
            self.assertInvalid("^device .* is no CUDA device: write 1", commpool.Pool, device=device)

    def test_beyond_what_the_driver_numbers_are_refused(self):
        for device in (2**31, 2**32, 2**32 + 1, -2**32, f"cuda:{2**32}", Index(2**32), torchs_device("cuda", 2**32)):
            for call in (lambda device=device: commpool.Pool(device=device), lambda: commpool.allocate(512, 0, device),
                         lambda: commpool.set_device_limit(device, None), lambda: commpool.Pool.default(device)):
                self.assertInvalid("is no CUDA device", call)

    def test_that_are_named_open_no_driver_so_that_the_program_may_fork(self):
        program = "import emulated, commpool; print(commpool.empty(0, device=1), commpool.driver_description())"
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                             env={**os.environ, "PYTHONPATH": os.path.dirname(emulated.__file__)})
        self.assertEqual((run.stdout, run.stderr), ("<commpool.Array 0 float32, device 1> \n", ""))

    def test_are_named_by_the_option(self):
        pool = commpool.Pool()
        for option, call in (("peers", lambda: commpool.Pool(peers=[0, "cpu"])), ("devices", lambda: pool.grant("cpu")),
                             ("devices", lambda: pool.revoke(["cpu"]))):
            self.assertInvalid(f"^{option} 'cpu' is no CUDA device", call)


class Peers(emulated.Case):
    def test_are_one_or_several_however_they_are_written(self):
        for peers in ("cuda:1", Index(1), torchs_device("cuda", 1), [1], {1, 2}, (peer for peer in (1, 2)),
                      dict.fromkeys((1, 2)), iter(["cuda:1"])):
            pool = commpool.Pool(peers=peers)
            pool.revoke(1)
        for devices in ("cuda:1", (device for device in (1, Index(2))), range(1, 3)):
            pool.grant(devices)
        self.assertRaisesRegex(commpool.NotSupported, "there is no device 77", pool.grant, iter((1, 77)))


class Streams(emulated.Case):
    def test_that_are_none_are_for_programs_in_c(self):
        emulated.make_current(0)
        pool = commpool.Pool(backing="pinned")
        protocol = types.SimpleNamespace(__cuda_stream__=(0, 8))
        for allocate in (lambda: pool.allocate(512, stream=8), lambda: pool.allocate(512, stream=protocol),
                         lambda: commpool.allocate(512, stream=8), lambda: commpool.empty(4, stream=8)):
            self.assertInvalid("8 is no stream", allocate)


    def test_tell_a_version_and_a_handle(self):
        for told in (5, (), (0,), (0, 1, 2)):
            self.assertInvalid("^__cuda_stream__ of .* must be a pair: 0, and", commpool.allocate, 512,
                               types.SimpleNamespace(__cuda_stream__=told))


class Pointers(emulated.Case):
    def test_are_the_data_of_their_interface(self):
        emulated.make_current(0)
        with commpool.allocate(512) as buffer:
            told = {"data": (buffer.pointer, False)}
            self.assertEqual(commpool.block_of(types.SimpleNamespace(__cuda_array_interface__=told)).pointer,
                             buffer.pointer)
        for told in (5, {"shape": (4,)}, {"data": 5}, {"data": ()}, [1]):
            self.assertInvalid("^__cuda_array_interface__ of .* must be a dict", commpool.block_of,
                               types.SimpleNamespace(__cuda_array_interface__=told))


class PinnedMemory(emulated.Case):
    def test_is_read_and_written_by_the_cpu_and_comes_by_exact_size(self):
        for options in ({}, {"numa_node": 1}, {"frees": "ordered"}):
            with commpool.Pool(backing="pinned", **options) as pool:
                self.assertEqual(pool.backing, "pinned")
                block = pool.allocate(5_000_001)
                ctypes.memset(block.pointer, 0x3c, 5_000_001)
                self.assertEqual(ctypes.string_at(block.pointer + 5_000_000, 1), b"<")
                self.assertEqual(pool.stats().reserved_bytes.current, 5_001_216)
                block.free()

    def test_lies_on_a_node_that_is_there(self):
        self.assertInvalid("no host NUMA node 63", commpool.Pool, backing="pinned", numa_node=63)


class NumaNodes(emulated.Case):
    def test_are_numbers_of_the_host(self):
        self.assertEqual(commpool.Pool(location="host_numa", numa_node=Index(0)).device, 0)
        for node, why in ((2**32, r"4294967296 is not between 0 and 2\^31 - 1"), (-2, "-2 is not between"),
                          ("0", "'0' is no integer")):
            self.assertInvalid(f"numa_node {why}", commpool.Pool, location="host_numa", numa_node=node)
