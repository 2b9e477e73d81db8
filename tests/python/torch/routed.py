"""Shared by tests of commpool.torch, which import it before commpool."""

import contextlib
import ctypes
import os
import pathlib
import re
import sys
import threading
import unittest

LIBRARY = os.path.join(os.getcwd(), "src/library/c_api/libcommpool.so.0")  # below the root of Bazel's runfiles
if os.path.exists(LIBRARY):
    os.environ.setdefault("COMMPOOL_LIBRARY", LIBRARY)

import torch  # noqa: E402

import commpool.torch as commpool  # noqa: E402
from on_emulator import EmulatorCase, on_threads, run_python  # noqa: E402

MIB = 1 << 20


def tensor(nbytes, device=0):
    return torch.empty(nbytes, dtype=torch.uint8, device=torch.device("cuda", device))


def filled(value, numel=MIB, dtype=torch.uint8):
    return torch.full((numel,), value, dtype=dtype, device="cuda")


def tensor_in(pool, nbytes=MIB):
    """A tensor that is made in a scope of the pool."""
    with commpool.use_pool(pool):
        return tensor(nbytes, pool.device)


def filled_in(pool, value, numel=MIB, dtype=torch.uint8):
    with commpool.use_pool(pool):
        return filled(value, numel, dtype)


def pool_of(of_tensor):
    """The handle of the pool with the tensor's memory; None for torch's own memory."""
    block = commpool.block_of(of_tensor)
    return block.pool if block else None


def below_zero(statistics):
    """The figures of torch's statistics that count below zero."""
    return {name: figure for name, figure in statistics.items() if figure < 0 and name != "max_split_size"}


def on_thread(function):
    """Calls the function on another thread; returns its result."""
    return on_threads(function)[0]


@contextlib.contextmanager
def held(stream):
    """The stream does not go on before the end."""
    c = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    c.sem_init(semaphore, 0, 0)
    wait = ctypes.cast(c.sem_wait, ctypes.c_void_p)
    driver = ctypes.CDLL("libcuda.so.1")
    with torch.cuda.device(stream.device):  # a default stream's handle means the current device's
        launched = driver.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), wait, semaphore)
    if launched != 0:
        raise RuntimeError("cuLaunchHostFunc failed")
    try:
        yield
    finally:
        c.sem_post(semaphore)
        stream.synchronize()


def lines_of(case, program, *words):
    """Runs a program that lies beside the tests, to whose end neither the emulator nor commpool objects; its lines."""
    run = run_python(pathlib.Path(__file__).parent / program, *words)
    case.assertEqual(run.returncode, 0, run.stdout + run.stderr)
    case.assertNotIn("broken rule", run.stderr)
    case.assertNotIn("commpool warning", run.stderr)
    return run.stdout.splitlines()


def run_of_page(page, beginning, **names):
    """Runs the program that begins so as it stands on a page of the package, with what it leaves to the reader; its
    names afterwards."""
    text = (pathlib.Path(LIBRARY).parents[3] / "src/python" / page).read_text(encoding="utf-8")
    [program] = [program for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
                 if program.startswith(beginning)]
    with contextlib.redirect_stdout(sys.stderr):  # what ranks print is heard as their answers
        exec(compile(program, page, "exec"), names)
    return names


class MakeInBackward(torch.autograd.Function):
    """Passes a tensor on. Forward and backward each make a tensor, without any kernel."""

    @staticmethod
    def forward(ctx, x, made):
        ctx.made = made
        ctx.save_for_backward(x)  # a checkpoint recomputes it when it is asked for
        made.append(("forward", threading.get_ident(), torch.empty_like(x)))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        made = torch.empty_like(ctx.saved_tensors[0])
        ctx.made.append(("backward", threading.get_ident(), made))
        return made, None


def train_once(x, made=None):
    """Makes tensors of a leaf forward and backward; `made` takes them. Returns the output."""
    out = MakeInBackward.apply(x, [] if made is None else made)
    out.backward(torch.ones_like(out))
    return out


class RoutedCase(EmulatorCase):
    """Installs the router. No test may leave a pool behind."""

    @classmethod
    def setUpClass(cls):
        torch.cuda.init()
        if not commpool.install():
            raise unittest.SkipTest("there is no router and no compiler")

    def needs_device(self, number):
        """Returns the number, or skips the test if the machine has no such device."""
        if number >= torch.cuda.device_count():
            self.skipTest(f"{number + 1} devices are needed")
        return number

    def pool(self, name="pool", **options):
        pool = commpool.Pool(name, **options)
        self.addCleanup(pool.destroy)
        return pool

    def assert_in(self, pool, of_tensor):
        self.assertEqual(pool_of(of_tensor), pool.handle)

    def assert_serves(self, pool, nbytes=MIB):
        """A scope of the pool has its tensors."""
        self.assert_in(pool, tensor_in(pool, nbytes))

    def assert_native(self, of_tensor):
        self.assertIsNone(pool_of(of_tensor))
