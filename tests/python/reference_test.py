"""The programs of the package's reference run as they stand, with the names that they leave to the reader."""

import contextlib
import ctypes
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import emulated
import commpool
from emulated import MIB
from other_process import Other

_PAGE = pathlib.Path(emulated.REPOSITORY, "src/python/reference.md").read_text(encoding="utf-8")
_PROGRAMS = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)


def run(beginning, **names):
    """Runs the program that begins so; its names afterwards."""
    [program] = [program for program in _PROGRAMS if program.startswith(beginning)]
    names["commpool"] = commpool
    exec(compile(program, "reference.md", "exec"), names)
    return names


class Programs(unittest.TestCase):
    def test_of_a_symmetric_pool(self):
        [communicator] = emulated.communicators([0])
        names = run('pool = commpool.Pool("gradients"', rank=0, communicator=communicator, elements=MIB)
        self.assertEqual((names["offset"], names["pool"].closed), (0, True))
        emulated.check(emulated.nccl().ncclCommDestroy(ctypes.c_void_p(communicator)))

    def test_of_two_processes(self):
        pool, stream, other = commpool.Pool(), emulated.Stream(), Other()
        weights = pool.allocate(4 * MIB, stream)
        ticket = run("ticket = pool.share(weights)", pool=pool, weights=weights, stream=stream,
                     write=lambda block, stream: stream.fill(block, 7))["ticket"]
        stream.synchronize()
        [reader] = [program for program in _PROGRAMS if program.startswith("shared = commpool.Pool.import_")]
        other.does(f"ticket, stream, read = {ticket!r}, None, []")
        other.does("use = lambda array, stream: read.append(array.nbytes)")
        other.does("import contextlib, sys")  # standard output is how the other process answers
        other.does(f"with contextlib.redirect_stdout(sys.stderr): exec({reader!r}, globals())")
        self.assertEqual(other.says("read"), [4 * MIB])
        self.assertEqual(other.end(), 0)
        pool.destroy()

    def test_of_a_transfer(self):
        pool, agent = commpool.Pool(backing="cuda", reserve=MIB), mock.Mock()  # as NIXL's agent
        run("pool.add_registrar(", pool=pool, agent=agent)
        agent.register_memory.assert_called_once()
        pool.close()
        agent.deregister_memory.assert_called_once()

    def test_of_a_recording(self):
        commpool.initialize("emulated")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run('with commpool.record("recording"', step=lambda: commpool.allocate(MIB, device=0))
            self.assertTrue(list(pathlib.Path("recording").glob("*.recording")))
