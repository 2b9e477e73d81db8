"""Bad input raises Python exceptions that say what to do. The process goes on, and nothing is lost."""

import asyncio
import gc
import os
import pathlib
import subprocess
import tempfile
import textwrap
import unittest
from unittest import mock

import torch

import on_emulator
from routed import MIB, RoutedCase, commpool, on_thread, tensor

from commpool import _compile, _flags


def python(program, **environment):
    """The output of a program with our package in its own process, which must exit cleanly."""
    begins = "import torch, commpool.torch as commpool\n"
    return on_emulator.printed_by("-c", begins + textwrap.dedent(program), **environment)


def without_compiler(program):
    """The same where no router is kept, and none can be made."""
    with tempfile.TemporaryDirectory() as cache:
        return python(program, COMMPOOL_CACHE=cache, PATH=cache, CXX="")


def made_library(path, source):
    """Compiles C code; returns the path of the shared library."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


class Scopes(RoutedCase):
    def test_end_where_an_exception_leaves(self):
        with self.assertRaises(KeyError), commpool.use_pool(self.pool()):
            raise KeyError
        self.assert_native(tensor(MIB))

    def test_left_on_another_thread_have_ended_and_say_so(self):
        pool = self.pool()
        scope = commpool.use_pool(pool)
        scope.__enter__()
        with self.assertRaisesRegex(commpool.FailedPrecondition, "it was left on another thread"):
            on_thread(lambda: scope.__exit__(None, None, None))
        self.assert_native(tensor(MIB))
        self.assert_serves(pool)
        self.assert_native(tensor(MIB))

    def test_left_by_another_task_have_ended_and_say_so(self):
        scope = commpool.use_pool(self.pool())

        async def call(function, *arguments):
            function(*arguments)

        async def both():
            await asyncio.ensure_future(call(scope.__enter__))
            await asyncio.ensure_future(call(scope.__exit__, None, None, None))

        with self.assertRaisesRegex(commpool.FailedPrecondition, "another asyncio task.*await nothing"):
            asyncio.run(both())
        self.assert_native(tensor(MIB))

    @unittest.skipIf(torch.__version__ < "2.15", "torch traces no scope")
    def test_of_ours_break_the_graph_that_torch_compiles_and_torch_s_own_do_not(self):
        self.assertEqual(python("""
            pool = commpool.Pool()
            mem_pool = commpool.mem_pool(pool)

            def made_in(scope, whole):
                def made(x):
                    with scope():
                        return torch.empty_like(x)

                torch._dynamo.reset()
                block = commpool.block_of(torch.compile(made, backend="eager", fullgraph=whole)(torch.ones(1).cuda()))
                return block is not None and block.pool == pool.handle

            theirs, ours = (lambda: torch.cuda.use_mem_pool(mem_pool)), (lambda: commpool.use_pool(pool))
            print(made_in(theirs, True), made_in(theirs, False), made_in(ours, False))
            try:
                made_in(ours, True)
            except torch._dynamo.exc.Unsupported:
                print("broke")
            """), "True True True\nbroke\n")

    def test_are_open_once_and_closed_once(self):
        scope = commpool.use_pool(self.pool())
        with scope, self.assertRaisesRegex(commpool.FailedPrecondition, "open already"):
            scope.__enter__()
        self.assertRaises(commpool.FailedPrecondition, scope.__exit__, None, None, None)

    def test_left_in_another_order_catch_nothing_more_and_say_so(self):
        one, other = self.pool("one"), self.pool("other")
        outer, inner = commpool.use_pool(one), commpool.use_pool(other)
        outer.__enter__()
        inner.__enter__()
        with self.assertRaisesRegex(commpool.FailedPrecondition, "'one'.*left before one that was entered after it"):
            outer.__exit__(None, None, None)
        self.assert_in(other, tensor(MIB))
        inner.__exit__(None, None, None)
        self.assert_native(tensor(MIB))

    def test_dropped_while_open_end(self):
        scope = commpool.use_pool(self.pool())
        scope.__enter__()
        del scope
        gc.collect()
        self.assert_native(tensor(MIB))

    def test_refuse_what_is_no_pool_and_a_pool_of_another_device(self):
        with self.assertRaisesRegex(commpool.InvalidArgument, "takes a commpool.Pool"):
            commpool.use_pool(torch.cuda.MemPool())
        pool = self.pool(device=self.needs_device(1))
        with self.assertRaisesRegex(commpool.InvalidArgument, "serves device 1, not cuda:0"):
            commpool.use_pool(pool, device="cuda:0")
        with commpool.use_pool(pool):
            self.assert_native(tensor(MIB))

    def test_refuse_sizes_whose_least_is_above_the_most(self):
        with self.assertRaisesRegex(commpool.InvalidArgument, "least size, 2097152 bytes, is above its most, 1"):
            with commpool.use_pool(self.pool(), sizes=("2MiB", 1)):
                self.fail("it began")
        self.assert_native(tensor(MIB))

    def test_of_a_pool_that_has_ended_say_so(self):
        pool = commpool.Pool("gone")
        with commpool.use_pool(pool):
            pool.close()
            with self.assertRaisesRegex(RuntimeError, "gone.*closed"):
                tensor(MIB)
            pool.destroy()
            with self.assertRaisesRegex(RuntimeError, "commpool: .*pool"):
                tensor(MIB)
        self.assert_native(tensor(MIB))
        never_routed = commpool.Pool("ended")
        never_routed.destroy()
        for open_scope in (commpool.use_pool(never_routed).__enter__, lambda: commpool.mem_pool(never_routed),
                           lambda: commpool.install(default=never_routed)):
            with self.assertRaisesRegex(commpool.NotFound, "^pool 'ended' was destroyed$"):
                open_scope()


class Variables(RoutedCase):
    def test_with_values_that_are_not_known_are_refused(self):
        with mock.patch.dict(os.environ, COMMPOOL_TORCH_CALL_LINES="maybe"):
            with self.assertRaisesRegex(commpool.InvalidArgument, "COMMPOOL_TORCH_CALL_LINES=maybe is none of 0, 1"):
                commpool.Pool(symmetric_across=object())


class Tensors(RoutedCase):
    def test_outlive_their_pool(self):
        pool = commpool.Pool("short-lived")
        with commpool.use_pool(pool):
            kept = torch.full((100,), 7, dtype=torch.float32, device="cuda")
        pool.destroy()
        del pool
        gc.collect()
        self.assertEqual(kept.tolist(), [7] * 100)
        kept.record_stream(torch.cuda.Stream())
        del kept
        torch.cuda.synchronize()

    def test_outlive_the_process_s_last_line(self):
        self.assertEqual(python("""
            pool = commpool.Pool()
            with commpool.use_pool(pool):
                kept = torch.empty(100, device="cuda")
            print("done")
            """), "done\n")

    def test_in_a_forked_child_are_the_parent_s(self):
        self.assertEqual(python("""
            import os
            pool = commpool.Pool()
            scope = commpool.use_pool(pool)
            scope.__enter__()
            kept = torch.empty(100, device="cuda")
            child = os.fork()
            if child == 0:
                del kept                 # frees nothing of the parent's
                torch.empty(100)         # the loader's work goes on
                try:
                    torch.empty(100, device="cuda")
                except RuntimeError as error:
                    os._exit(0 if "forked subprocess" in str(error) else 3)
                os._exit(4)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pool.stats().allocated_blocks.current)
            """), "0 1\n")

    def test_of_a_data_loader_s_workers_are_fine(self):
        self.assertEqual(python("""
            pool = commpool.Pool()
            with commpool.use_pool(pool):
                loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, num_workers=2,
                                                     multiprocessing_context="fork")
                batches = [batch.to("cuda") for batch in loader]
            print([batch.tolist() for batch in batches], pool.stats().allocated_blocks.current)
            """), "[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]] 2\n")


class Routers(unittest.TestCase):
    @unittest.skipIf(torch.cuda.device_count() < 3, "three devices are needed")
    def test_that_come_late_make_no_context(self):
        self.assertEqual(python("""
            kept = [torch.empty(1, device=f"cuda:{device}") for device in (1, 2)]
            torch.cuda.set_per_process_memory_fraction(0.5, 1)
            print([torch._C._cuda_hasPrimaryContext(device) for device in range(3)])
            commpool.install()
            print([torch._C._cuda_hasPrimaryContext(device) for device in range(3)])
            """), "[False, True, True]\n[False, True, True]\n")

    def test_come_before_torch_has_begun_with_cuda(self):
        self.assertEqual(python("""
            print(commpool.install(), torch.cuda.is_initialized())
            pool = commpool.Pool()
            with commpool.use_pool(pool):
                print(commpool.block_of(torch.empty(100, device="cuda")).pool == pool.handle)
            """), "True False\nTrue\n")

    def test_of_another_torch_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            router = made_library(os.path.join(folder, "other.so"),
                                  'const char* commpool_torch_built_for(void) { return "2.8"; }')
            said = python("""
                try:
                    commpool.install()
                except commpool.NotSupported as error:
                    print(error)
                print(torch.empty(1, device="cuda").shape)
                """, COMMPOOL_TORCH_ROUTER=router)
        version = ".".join(torch.__version__.split(".")[:2])
        self.assertIn(f"is the router for torch 2.8, and torch {version} is installed", said)
        self.assertIn("torch.Size([1])", said)

    def test_refuse_a_library_of_another_minor_version(self):
        with tempfile.TemporaryDirectory() as folder:
            library = made_library(os.path.join(folder, "libcommpool.so.0"),
                                   "int commpool_version(void) { return 1 << 20; }")
            said = python(f"""
                import commpool._library as loaded
                loaded.library.path = {library!r}
                try:
                    commpool.install()
                except commpool.FailedPrecondition as error:
                    print(error)
                print(torch.empty(1, device="cuda").shape, commpool.installed())
                """)
        self.assertIn(f"{library} is commpool 104.85.76, and this router is of {commpool.library_version()}, which "
                      "needs the same minor version", said)
        self.assertIn("torch.Size([1]) False", said)

    def test_are_compiled_with_cuda_headers_that_are_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            part, whole = pathlib.Path(folder, "part"), pathlib.Path(folder, "whole")
            for path in (part / "cuda_runtime_api.h", whole / "cuda_runtime_api.h", whole / "crt/host_config.h"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            with mock.patch.object(_compile, "_cuda_includes", lambda *_: [part, whole]):
                self.assertEqual(_compile.cuda_headers(pathlib.Path()), whole)
            with mock.patch.object(_compile, "_cuda_includes", lambda *_: [part]):
                with self.assertRaisesRegex(_compile.CannotBuild, "nvidia-cuda-crt, or set CUDA_HOME"):
                    _compile.cuda_headers(pathlib.Path())

    def test_keep_a_compiler_s_own_library_to_themselves(self):
        with tempfile.TemporaryDirectory() as folder:
            router = os.path.join(folder, "router.so")
            subprocess.run(["g++", *_flags.CXX, "-x", "c++", "-", "-o", router, "-static-libstdc++", *_flags.LINK],
                           text=True, check=True, input="""
#include <sstream>
extern "C" __attribute__((visibility("default"))) unsigned long Length(unsigned long bytes) {
  std::ostringstream text;
  text << bytes;
  return text.str().size();
}
""")
            seen = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=just-symbols", router], text=True,
                                  capture_output=True, check=True).stdout
        self.assertEqual(seen.split(), ["Length"])

    def test_that_cannot_be_compiled_leave_mem_pools_and_one_warning(self):
        said = without_compiler("""
            import warnings
            import commpool.torch._router as router
            router._prebuilt = lambda: None
            pool = commpool.Pool(device=0)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                for _ in range(3):
                    with commpool.use_pool(pool):
                        kept = torch.empty(1 << 20, device="cuda")
            print(commpool.block_of(kept).pool == pool.handle, commpool.install())
            print([str(warning.message).partition(":")[0] for warning in seen])
            print(commpool.fallbacks())
            try:
                commpool.use_pool(pool, sizes=("1MiB", None))
            except commpool.NotSupported as error:
                print("sizes" in str(error))
            """)
        self.assertEqual(said.splitlines(), [
            "True False", "['commpool.torch', 'commpool.torch']",
            "{'scopes without backward': 3, 'MemPool over functions': 3}", "True"])

    @unittest.skipIf(torch.cuda.device_count() < 3, "three devices are needed")
    def test_that_cannot_be_compiled_grant_pools_to_devices_in_use(self):
        said = without_compiler("""
            kept = torch.empty(1, device="cuda:1")
            for options in ({}, {"backing": "cuda"}, {"grants": "read"}):
                pool = commpool.Pool(device=0, **options)
                with commpool.use_pool(pool):
                    torch.empty(1, device="cuda:0")
                print(commpool.installed(), *map(pool.access_of, range(3)))
            """)
        self.assertEqual(said.splitlines(), ["False read-write read-write none", "False read-write none none",
                                             "False read-write read none"])

    @unittest.skipUnless(os.environ.get("COMMPOOL_DRIVER") == "emulated", "the emulator reports it")
    def test_that_cannot_be_compiled_tell_pools_of_no_capture(self):
        on_emulator.keep_operations()
        said = without_compiler("""
            import os
            import commpool.torch._router as router
            router._prebuilt = lambda: None
            os.dup2(1, 2)  # what the emulator reports
            with torch.cuda.graph(torch.cuda.CUDAGraph()), commpool.use_pool(commpool.Pool("grads", device=0)):
                torch.ones(9, device="cuda")
            """)
        self.assertRegex(said, "there is no router for torch .*there is no C.* compiler")
        self.assertRegex(said, "unannounced capture: pool grads serves stream .* and was not told of the capture")

    def test_are_not_put_in_front_of_another_allocator(self):
        said = python("""
            try:
                with commpool.use_pool(commpool.Pool(device=0)):
                    torch.empty(1 << 20, device="cuda")
            except commpool.NotSupported as error:
                print(error)
            """, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertIn("torch's allocator is cudaMallocAsync here", said)
        self.assertIn("take backend:cudaMallocAsync out of", said)

    def test_that_end_a_process_are_not_taken(self):
        on_emulator.keep_operations()
        with tempfile.TemporaryDirectory() as cache:
            compiler = pathlib.Path(cache, "compiler")
            compiler.write_text("""#!/bin/bash
while [[ $1 != -o ]]; do shift; done
gcc -shared -fPIC -x c - -o "$2" <<<'#include <signal.h>
__attribute__((constructor)) static void end(void) { raise(SIGSEGV); }'
""", encoding="utf-8")
            compiler.chmod(0o700)
            said = python("""
                import commpool.torch._router as router
                router._prebuilt = lambda: None
                print(commpool.install(), router.reason())
                """, COMMPOOL_CACHE=cache, CXX=str(compiler))
            self.assertRegex(said, "^False what .*/compiler made ended a process by SIGSEGV where it had to throw")
            self.assertEqual(list(pathlib.Path(cache, "torch").iterdir()), [])
