"""Programs that people asked for: as they wrote them, or with the one line that was missing."""

import pathlib
import subprocess
import tempfile
import unittest

import torch

from commpool import _compile
from on_emulator import printed_by
from routed import MIB, RoutedCase, commpool, filled, filled_in, pool_of, tensor, tensor_in, train_once

_ALLOCATOR = """
// Compile with g++ alloc.cc -o alloc.so -I/usr/local/cuda/include -shared -fPIC
#include <sys/types.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
extern "C" {
int allocations, frees;
void* my_malloc(ssize_t size, int device, cudaStream_t stream) {
   void *ptr = nullptr;
   ++allocations;
   return cudaMalloc(&ptr, size) == cudaSuccess ? ptr : nullptr;
}
void my_free(void* ptr, ssize_t size, int device, cudaStream_t stream) {
   ++frees;
   cudaFree(ptr);
}
int count_allocations() { return allocations; }
int count_frees() { return frees; }
}
"""


def _cuda_folder(name):
    packages = pathlib.Path(torch.__file__).parent.parent
    for folder in [packages / "nvidia/cu13", packages / "nvidia/cuda_runtime", pathlib.Path("/usr/local/cuda")]:
        for found in folder.glob(name):
            return found
    raise unittest.SkipTest(f"there is no {name}")


def build_allocator(folder):
    """Compiles alloc.so, with functions of any name."""
    source, library = pathlib.Path(folder, "alloc.cc"), pathlib.Path(folder, "alloc.so")
    source.write_text(_ALLOCATOR, encoding="utf-8")
    include = _compile.cuda_headers(pathlib.Path(torch.__file__).resolve().parent.parent)
    runtime = _cuda_folder("lib*/libcudart.so.1*")
    subprocess.run(["g++", str(source), "-o", str(library), f"-I{include}", "-shared", "-fPIC", str(runtime)],
                   check=True)
    return library


def run(program, *words):
    """The lines that a program prints in its own process."""
    return printed_by("-c", program, *words).splitlines()


# "It would be better if CUDAPluggableAllocator could also reuse the caching behavior of PyTorch."
_CACHING = """
import ctypes, sys, torch, commpool.torch as commpool
allocator = ctypes.CDLL(sys.argv[1])
counts = lambda: (allocator.count_allocations(), allocator.count_frees())
pool = commpool.Pool("mine", backing=commpool.UserBacking.load(sys.argv[1], "my_malloc", "my_free"))
commpool.install(default=pool)                      # in place of change_current_allocator
total = torch.cuda.get_device_properties(0).total_memory
for factor in (1024, 1024 ** 2, total // 80):       # the last ones: 60/80 and 70/80 of the device
    data = torch.empty((60, factor), dtype=torch.uint8, device="cuda")
    del data
    data = torch.empty((70, factor), dtype=torch.uint8, device="cuda")
    del data
    torch.cuda.empty_cache() if len(sys.argv) > 2 else None
    print(*counts())
print(torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.memory_allocated())
b = torch.zeros(10, device="cuda")
print(commpool.block_of(b).pool == pool.handle)
"""

# "On OOM the pool should try to release unused memory, and then try the allocation again."
_SIXTY_THEN_SEVENTY = """
import sys, torch, commpool.torch as commpool
backing = sys.argv[1]                               # or a library with the program's own functions
if backing.endswith(".so"):
    backing = commpool.UserBacking.load(backing, "my_malloc", "my_free")
pool = commpool.Pool(backing=backing, device=0)
total = torch.cuda.get_device_properties(0).total_memory
scopes = [lambda: commpool.use_pool(pool), lambda: torch.cuda.use_mem_pool(commpool.mem_pool(pool))]
for scope in scopes:
    with scope():
        for factor in (1024, 1024 ** 2, total // 80):
            data = torch.empty((60, factor), dtype=torch.uint8, device="cuda")
            del data
            data = torch.empty((70, factor), dtype=torch.uint8, device="cuda")
            print(commpool.block_of(data).pool == pool.handle)
            del data
            torch.cuda.empty_cache() if len(sys.argv) > 2 else None
"""

# The settings of an article about PYTORCH_CUDA_ALLOC_CONF, and its program.
_SETTINGS = """
import os
os.environ["COMMPOOL_CONF"] = __import__("sys").argv[1]
import torch, commpool.torch as commpool
pool = commpool.Pool("article")
with commpool.use_pool(pool):
    x = torch.randn(1000, 1000).cuda()
    y = x + x.t()
    z = torch.matmul(y, y) if os.environ.get("COMMPOOL_DRIVER") != "emulated" else y
    on_host = x.cpu()
    print(*(commpool.block_of(made).pool == pool.handle for made in (x, y, z)),
          torch.equal(y.cpu(), on_host + on_host.t()))
    del x, y, z
print(pool.mode, pool.stats().reserved_bytes.current >> 20,
      *sorted(f"{setting.key}:{setting.value}" for setting in commpool.config()
             if setting.source != "default" and setting.key != "driver"))
"""


class PluggedAllocators(RoutedCase):
    def test_get_caching_statistics_and_give_back_what_is_short(self):
        with tempfile.TemporaryDirectory() as folder:
            library = build_allocator(folder)
            *counts, allocated, in_pool = run(_CACHING, library)
            first, second, third = [tuple(map(int, line.split())) for line in counts]
            self.assertEqual(first, (1, 0), "70 KiB come from the segment that 60 KiB made")
            self.assertLessEqual(second[0], 3)
            self.assertGreater(third[1], second[1], "60/80 of the device went back before 70/80 came")
            self.assertEqual((allocated, in_pool), ("6 0", "True"))
            emptied = [tuple(map(int, line.split())) for line in run(_CACHING, library, "empty")[:3]]
            self.assertTrue(all(made == freed for made, freed in emptied), emptied)

    def test_may_be_python_functions(self):
        seen = []

        def allocate(nbytes, _device, _stream):
            seen.append(nbytes)
            return torch.cuda.caching_allocator_alloc(nbytes)  # torch's own, though a scope is open

        pool = commpool.Pool("python", backing=commpool.UserBacking(
            allocate, lambda pointer, *_rest: torch.cuda.caching_allocator_delete(pointer)))
        with commpool.use_pool(pool):
            tensor(MIB)
            again = filled(5)
        self.assertEqual((len(seen), again[0].item()), (1, 5))
        del again
        pool.close()
        pool.destroy()

    def test_that_raise_in_python_are_in_torch_s_error(self):
        pool = self.pool(backing=commpool.UserBacking(lambda size: "memory", lambda pointer: None))
        for _ in range(2):
            with self.assertRaisesRegex(torch.OutOfMemoryError, r"a Python function raised TypeError: .*'str'"):
                tensor_in(pool)
        silent = self.pool(backing=commpool.UserBacking(lambda size: None, lambda pointer: None))
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            tensor_in(silent)
        self.assertNotIn("raised", str(caught.exception))

    def test_release_unused_memory_in_a_scope_of_ours_and_of_torch_s(self):
        with tempfile.TemporaryDirectory() as folder:
            library = build_allocator(folder)
            for words in (("vmm",), ("cuda", "empty_cache in the scope"), (library,),
                          (library, "empty_cache in the scope")):
                self.assertEqual(run(_SIXTY_THEN_SEVENTY, *words), ["True"] * 6, words)


class Proposal(RoutedCase):
    def test_of_mixed_allocators_frees_each_tensor_by_its_own(self):
        pool, other, kept = self.pool(), self.pool("other", backing="cuda"), []
        for _ in range(3):
            kept += [filled_in(pool, 0, 1000), filled(0, 1000), filled_in(other, 0, 1000)]
        self.assertEqual([pool_of(of_any) for of_any in kept], [pool.handle, None, other.handle] * 3)
        del kept
        self.assertEqual([which.stats().allocated_blocks.current for which in (pool, other)], [0, 0])

    def test_of_extended_gpu_memory_lies_at_a_numa_node(self):
        pool = self.pool("egm", location="host_numa", numa_node=0)
        gathered = filled_in(pool, 3)
        self.assert_in(pool, gathered)
        self.assertEqual(gathered[-1].item(), 3)


class Slides(RoutedCase):
    """From a talk about stream-ordered memory: tensors on several devices, and preparations for a capture."""

    def test_of_several_devices_have_each_its_pool(self):
        self.needs_device(2)
        cuda, cuda2 = torch.device("cuda"), torch.device("cuda:2")
        pools = [self.pool(f"device {number}", device=number) for number in range(3)]
        with commpool.use_pool(pools[0]), commpool.use_pool(pools[1]), commpool.use_pool(pools[2]):
            x = torch.tensor([1., 2.], device=torch.device("cuda:0"))
            y = torch.tensor([1., 2.]).cuda()
            with torch.cuda.device(1):
                a = torch.tensor([1., 2.], device=cuda)
                b = torch.tensor([1., 2.]).cuda()
                b2 = torch.tensor([1., 2.]).to(device=cuda)
                c = a + b
                z = x + y
                d = torch.randn(2).to(cuda2)
                e = torch.randn(1).to(cuda2)
                f = torch.randn(2).cuda(cuda2)
                with self.assertRaisesRegex(RuntimeError, "same device"):
                    c + z
                moved = z.to(cuda)  # this line was missing
                i = c + moved
        for made, device in [(x, 0), (y, 0), (z, 0), (a, 1), (b, 1), (b2, 1), (c, 1), (moved, 1), (i, 1), (d, 2),
                             (e, 2), (f, 2)]:
            self.assertEqual(made.device.index, device)
            self.assert_in(pools[device], made)
        self.assertEqual(i.tolist(), [4, 8])

    def test_warm_up_on_a_side_stream_before_a_capture(self):
        pool, made = self.pool(), []
        x = torch.ones(1024, device="cuda", requires_grad=True)
        side = torch.cuda.Stream()
        with commpool.use_pool(pool):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    x.grad = None
                    train_once(x, made)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            x.grad = None
            with torch.cuda.graph(graph):
                captured = filled(7)
        self.assertEqual({pool_of(entry[2]) for entry in made}, {pool.handle})
        self.assert_in(pool, captured)
        captured.zero_()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(captured[5].item(), 7)


class Settings(RoutedCase):
    def test_of_the_article_have_a_meaning(self):
        large = 256  # in MiB: one piece of a pool for many blocks
        for setting, mode, has_large, in_force in [
                ("heuristic", "expandable", False, "mode:expandable moves:under_pressure strategy:heuristic"),
                ("nmalloc", "fixed", False, "nmalloc:3 strategy:nmalloc"),
                ("nmalloc:5", "fixed", False, "nmalloc:5"),
                ("caching_allocator", "fixed", False, "mode:fixed release_threshold:none strategy:caching_allocator"),
                ("pooled", "fixed", True, "mode:fixed release_threshold:none segment:256MiB strategy:pooled")]:
            values, numbers = run(_SETTINGS, setting)
            self.assertEqual(values, "True True True True", setting)
            of_pool, reserved, said = numbers.split(" ", 2)
            self.assertEqual((of_pool, int(reserved) >= large, said), (mode, has_large, in_force), setting)
