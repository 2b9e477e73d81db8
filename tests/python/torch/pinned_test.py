"""A scope over a pool of pinned memory has torch's pinned tensors, and nothing else."""

import gc
import os
import subprocess
import tempfile
import unittest

import torch

from on_emulator import printed_by, run_python
from routed import LIBRARY, MIB, RoutedCase, commpool, held, on_thread, tensor


def pinned(nbytes=MIB):
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def pinned_in(pool, nbytes=MIB):
    with commpool.use_pool(pool):
        return pinned(nbytes)


class PinnedCase(RoutedCase):
    def pinned_pool(self, name="pinned", **options):
        return self.pool(name, backing="pinned", **options)


class Devices(PinnedCase):
    def test_a_copy_on_another_device_s_default_stream_keeps_the_tensor(self):
        pool = self.pinned_pool()
        for device in (self.needs_device(1), 0):
            stream = torch.cuda.default_stream(device)
            with torch.cuda.device(device), commpool.use_pool(pool):
                source, there = pinned().fill_(7), tensor(MIB, device).zero_()
                stream.synchronize()
                with held(stream):
                    there.copy_(source, non_blocking=True)
                    address = source.data_ptr()
                    del source
                    self.assertNotEqual(pinned().data_ptr(), address, "the copy has not read it yet")

    def others(self):
        """Pools of device 0 whose memory device 1 uses too, with that device's default stream; 0 is current."""
        stream = torch.cuda.default_stream(self.needs_device(1))
        torch.cuda.set_device(0)
        return [(self.pinned_pool("host"), stream), (self.pool("peer", device=0, peers=[1]), stream)]

    def test_another_device_s_default_stream_is_meant_where_its_object_is_passed(self):
        for pool, stream in self.others():
            for recorded in (True, False):
                block = pool.allocate(MIB) if recorded else pool.allocate(MIB, stream)
                with self.subTest(pool.name, recorded=recorded), held(stream):
                    if recorded:
                        block.record_stream(stream)
                    address = block.pointer
                    block.free()
                    self.assertNotEqual(pool.allocate(MIB).pointer, address, "the stream works on it")

    def test_an_array_of_another_device_s_stream_is_handed_over_behind_its_work(self):
        for pool, default in self.others():
            for stream in (default, torch.cuda.Stream(1)):
                with self.subTest(pool.name, stream=stream), torch.cuda.device(1), held(stream):
                    taken = torch.from_dlpack(pool.empty(MIB, "uint8", stream=stream))
                    self.assertFalse(torch.cuda.default_stream(0).query(), "it waits for the array's stream")
                    del taken

    def test_an_array_that_another_device_reads_serves_no_other(self):
        pool = self.pinned_pool()
        self.needs_device(1)
        with torch.cuda.device(1):
            array = pool.empty(MIB, "uint8")
            taken = torch.from_dlpack(array)
            address = array.pointer
            with held(torch.cuda.default_stream(0)):
                del array, taken
                gc.collect()
                self.assertNotEqual(pool.allocate(MIB).pointer, address)


class Scopes(PinnedCase):
    def test_catch_pinned_tensors_and_no_tensors_of_a_device(self):
        pool = self.pinned_pool()
        before = pinned()
        with commpool.use_pool(pool):
            made = [pinned(), torch.arange(100).pin_memory(), torch.zeros(3, pin_memory=True)]
            on_device, pageable = tensor(MIB), torch.empty(100)
        for of_tensor in made:
            self.assertTrue(of_tensor.is_pinned())
            self.assert_in(pool, of_tensor)
        self.assertEqual(made[1].tolist(), list(range(100)))
        for of_tensor in (before, pinned(), on_device):
            self.assert_native(of_tensor)
        self.assertFalse(pageable.is_pinned())
        del made, of_tensor
        self.assertEqual(pool.stats().allocated_blocks.current, 0)

    def test_catch_those_of_every_thread(self):
        pool = self.pinned_pool()
        with commpool.use_pool(pool):
            self.assert_in(pool, on_thread(pinned))
        self.assert_native(on_thread(pinned))

    def test_catch_those_that_a_data_loader_pins_on_its_thread(self):
        pool = self.pinned_pool()
        rows = torch.arange(64 * 1024, dtype=torch.float32).reshape(64, 1024)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=16, num_workers=1,
                                             pin_memory=True)
        with commpool.use_pool(pool):
            for number, (batch,) in enumerate(loader):
                self.assertTrue(batch.is_pinned())
                self.assert_in(pool, batch)
                on_device = batch.to("cuda", non_blocking=True)
                self.assertTrue(torch.equal(on_device.cpu(), rows[16 * number:16 * number + 16]))
        self.assertEqual(number, 3)

    def test_nest_with_others_of_every_kind(self):
        outer, inner, of_device = self.pinned_pool("outer"), self.pinned_pool("inner"), self.pool("of_device")
        with commpool.use_pool(outer), commpool.use_pool(of_device):
            with commpool.use_pool(inner, sizes=("1MiB", None)):
                self.assert_in(inner, pinned())
                self.assert_in(outer, pinned(MIB - 1))
                self.assert_in(of_device, tensor(MIB))
            self.assert_in(outer, pinned())

    def test_end_in_any_order(self):
        first, second = self.pinned_pool("first"), self.pinned_pool("second")
        scopes = [commpool.use_pool(first), commpool.use_pool(second)]
        for scope in scopes:
            scope.__enter__()
        scopes[0].__exit__(None, None, None)
        self.assert_in(second, pinned())
        scopes[1].__exit__(None, None, None)
        self.assert_native(pinned())

    def test_hand_what_does_not_fit_outwards_and_at_last_to_torch(self):
        small, large = self.pinned_pool("small", limit="2MiB"), self.pinned_pool("large", limit="8MiB")
        with commpool.use_pool(large, exhaustion="next_scope"), commpool.use_pool(small, exhaustion="next_scope"):
            self.assert_in(small, pinned())
            self.assert_in(large, pinned(6 * MIB))
            self.assert_native(pinned(16 * MIB))
        with commpool.use_pool(small), self.assertRaisesRegex(torch.OutOfMemoryError, "small.*limit"):
            pinned(16 * MIB)

    def test_take_no_filter_and_no_stream(self):
        pool = self.pinned_pool()
        for words in ({"filter": "thread"}, {"stream": torch.cuda.Stream()}):
            with self.assertRaisesRegex(commpool.InvalidArgument, "pinned tensors of every thread"):
                commpool.use_pool(pool, **words)
        with commpool.use_pool(pool, filter="process"):
            self.assert_in(pool, pinned())

    def test_over_other_pools_catch_no_pinned_tensors(self):
        with commpool.use_pool(self.pool()):
            self.assert_native(pinned())

    def test_leave_a_capture_s_pinned_tensors_to_torch(self):
        pool = self.pinned_pool()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with commpool.use_pool(pool), torch.cuda.graph(graph, stream=stream):
            inside = pinned()
        self.assert_native(inside)
        del inside
        graph.reset()

    def test_catch_nothing_after_uninstall_and_go_on_after_install(self):
        pool = self.pinned_pool()
        with commpool.use_pool(pool):
            kept = pinned()
            self.assertTrue(commpool.uninstall())
            self.assert_native(pinned())
            kept.to("cuda", non_blocking=True)
            commpool.install()
            self.assert_in(pool, pinned())
        self.assert_in(pool, kept)

    def test_are_refused_to_mem_pools_and_as_the_whole_allocator(self):
        pool = self.pinned_pool()
        for refuse in (lambda: commpool.mem_pool(pool), lambda: commpool.mem_pool(backing="pinned"),
                       lambda: commpool.install(default=pool)):
            with self.assertRaisesRegex(commpool.InvalidArgument, "pinned memory.*use_pool"):
                refuse()
        with commpool.use_pool(pool):
            self.assert_in(pool, pinned())
            self.assert_native(tensor(MIB))

    def test_over_pools_whose_blocks_need_a_stream_are_refused(self):
        for kind in (commpool.Pool, commpool.Pool.__base__):  # the package's own Pool too
            with self.assertRaisesRegex(commpool.InvalidArgument, 'has frees="ordered", and torch'):
                commpool.use_pool(kind(backing="pinned", frees="ordered")).__enter__()

    def test_are_refused_where_another_allocator_stays_in_front(self):
        program = """
import ctypes, pathlib, torch, commpool.torch as commpool
torch.cuda.init()
torchs = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
get = torchs._ZN2at16getHostAllocatorEN3c1010DeviceTypeE
get.restype = ctypes.c_void_p
torchs._ZN2at16setHostAllocatorEN3c1010DeviceTypeEPNS_13HostAllocatorEh(1, ctypes.c_void_p(get(1)), 200)
pool = commpool.Pool("pinned", backing="pinned")
try:
    with commpool.use_pool(pool):
        print("entered")
except commpool.FailedPrecondition as error:
    print(error)
print(torch.ones(3, pin_memory=True).is_pinned(), commpool.block_of(torch.ones(3, pin_memory=True)))
"""
        self.assertEqual(printed_by("-c", program).splitlines(), [
            "pinned tensors stay PyTorch's own: another allocator of pinned memory lets no other take its place",
            "True None"])


class Memory(PinnedCase):
    def test_is_taken_by_exact_size(self):
        pool = self.pinned_pool()
        with commpool.use_pool(pool):
            made = [pinned((33 * MIB >> 3) * number + 4096 * number) for number in range(1, 20)]
        self.assertLessEqual(pool.stats().reserved_bytes.current, 1.01 * sum(of.numel() for of in made))

    def test_serves_again_only_once_the_copies_have_passed(self):
        pool, on_device = self.pinned_pool(), tensor(3 * MIB)
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            for to_device in (True, False):
                with self.subTest(stream=stream, to_device=to_device), commpool.use_pool(pool):
                    source = pinned(3 * MIB)
                    address = source.data_ptr()
                    with torch.cuda.stream(stream), held(stream):
                        if to_device:
                            on_device.copy_(source, non_blocking=True)
                        else:
                            source.copy_(on_device, non_blocking=True)
                        del source
                        self.assertNotEqual(pinned(3 * MIB).data_ptr(), address, "a copy still uses it")
                    two = [pinned(3 * MIB), pinned(3 * MIB)]
                    self.assertIn(address, [of.data_ptr() for of in two], "the copy has passed")
                    del two
                pool.trim()

    def test_waits_for_the_copy_of_a_part(self):
        pool, on_device = self.pinned_pool(), tensor(4096)
        with commpool.use_pool(pool), held(torch.cuda.current_stream()):
            source = pinned(3 * MIB)
            address = source.data_ptr()
            on_device.copy_(source[MIB:MIB + 4096], non_blocking=True)
            del source
            self.assertNotEqual(pinned(3 * MIB).data_ptr(), address)

    def test_may_be_freed_in_a_capture_that_copies_it(self):
        pool, on_device = self.pinned_pool(), tensor(3 * MIB)
        graph, stream, source = torch.cuda.CUDAGraph(), torch.cuda.Stream(), pinned_in(pool, 3 * MIB)
        with torch.cuda.graph(graph, stream=stream):
            on_device.copy_(source, non_blocking=True)
            del source
        graph.reset()  # it cannot be replayed, but an event in it would have broken the capture

    def test_may_be_copied_in_a_capture_after_its_pool_has_gone(self):
        on_device, stream = tensor(3 * MIB), torch.cuda.Stream()
        for end in (commpool.Pool.close, commpool.Pool.destroy):
            with self.subTest(end=end.__name__):
                pool = commpool.Pool("gone", backing="pinned")
                source = pinned_in(pool, 3 * MIB)
                end(pool)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    on_device.copy_(source, non_blocking=True)
                graph.replay()
                torch.cuda.synchronize()
                graph.reset()
                del source
                pool.destroy()

    def test_serves_at_once_where_no_copy_uses_it(self):
        pool = self.pinned_pool()
        with commpool.use_pool(pool), held(torch.cuda.current_stream()):
            address = pinned(3 * MIB).data_ptr()
            for _ in range(10):
                self.assertEqual(pinned(3 * MIB).data_ptr(), address, "what the stream does is no matter of its")

    def test_outlives_its_pool(self):
        pool = commpool.Pool("gone", backing="pinned")
        with commpool.use_pool(pool):
            kept = torch.arange(1000).pin_memory()
        pool.destroy()
        self.assertTrue(kept.is_pinned())
        self.assertEqual(kept.to("cuda", non_blocking=True).cpu().tolist(), list(range(1000)))
        del kept
        self.assertRaises(RuntimeError, pinned_in, pool)

    def test_is_no_memory_of_the_device_in_torch_s_statistics(self):
        pool = self.pinned_pool()
        gc.collect()
        before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        with commpool.use_pool(pool):
            kept = pinned()
            self.assertEqual((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()), before)
        self.assertEqual(pool.stats().requested_bytes.current, kept.numel())


# In front of libcommpool: it refuses what REFUSED names, as a host without memory does.
_REFUSING = """
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
static int refuses(const char* name) { return getenv("REFUSED") && !strcmp(getenv("REFUSED"), name); }
static void* real(const char* name) { return dlsym(dlopen(getenv("REAL_LIBRARY"), RTLD_NOW), name); }
int commpool_block_of(const void* pointer, void* block, size_t bytes) {
  int (*const call)(const void*, void*, size_t) = real("commpool_block_of");
  return refuses("block_of") ? 2 : call(pointer, block, bytes);
}
"""

_REFUSED = """
import ctypes, os, torch, commpool.torch as commpool
def refuse(name):
    ctypes.CDLL(None).setenv(b"REFUSED", name, 1)
def count(call):
    return ctypes.CDLL("libcuda.so.1").commpoolEmulatorCallCount(call)
on_device = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
pool = commpool.Pool("pinned", backing="pinned")
with commpool.use_pool(pool):
    source = torch.zeros(1 << 20, dtype=torch.uint8, pin_memory=True)
    refuse(b"block_of")
    waits = count(b"cuStreamSynchronize")
    on_device.copy_(source, non_blocking=True)
    print("waits:", count(b"cuStreamSynchronize") - waits)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            on_device.copy_(source, non_blocking=True)
    except RuntimeError:
        print("no copy in a capture")
    refuse(b"")
del source
"""


@unittest.skipUnless(os.environ.get("COMMPOOL_DRIVER") == "emulated", "the emulator counts calls")
class AHostWithoutMemory(unittest.TestCase):
    def test_leaves_no_copy_unrecorded(self):
        with tempfile.TemporaryDirectory() as folder:
            library = f"{folder}/librefusing.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-rpath,{os.path.dirname(LIBRARY)}",
                            "-x", "c", "-", "-x", "none", LIBRARY, "-o", library], input=_REFUSING, text=True,
                           check=True, timeout=300)
            run = run_python("-c", _REFUSED, COMMPOOL_LIBRARY=library, REAL_LIBRARY=LIBRARY)
        self.assertEqual((run.returncode, run.stdout), (0, "waits: 1\nno copy in a capture\n"), run.stderr)
