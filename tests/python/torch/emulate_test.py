"""`commpool emulate -- python`: PyTorch without any other preparation, alone and as ranks of mpirun and torchrun."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from rank_processes import torchrun, unprepared

_CLI = pathlib.Path(sys.argv[1]).absolute()
_SCRIPT = ("import os, torch; "
           "rank = int(os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('LOCAL_RANK', 0))); "
           "tensor = torch.full((2,), rank + 1, device=f'cuda:{rank}'); "
           "print(torch.cuda.device_count(), (tensor + 1).tolist())")

_GATHERS = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["RANK"]))
dist.init_process_group("nccl")
part = torch.ones(1 << 35, dtype=torch.uint8, device="cuda")
whole = torch.empty(1 << 36, dtype=torch.uint8, device="cuda")
dist.all_gather_into_tensor(whole, part)
dist.batch_isend_irecv([dist.P2POp(dist.isend, part, 1 - dist.get_rank()),
                        dist.P2POp(dist.irecv, whole[:1 << 35], 1 - dist.get_rank())])[0].wait()
os.write(1, f"{whole[5].item()} {torch.cuda.memory_allocated() + (1 << 35)}\\n".encode())  # in one piece
dist.destroy_process_group()
"""

_KERNELS = """
import torch, triton
@triton.jit
def twice(x):
    pass
x = torch.ones(8, device="cuda")
for call in (twice[1,], torch.compile(torch.nn.GELU())):
    try:
        call(x)
    except Exception as error:
        print(type(error).__name__)
"""


class Emulate(unittest.TestCase):
    def start(self, *before, program=(sys.executable, "-B", "-c", _SCRIPT), options=()):
        return subprocess.run([*before, _CLI, "emulate", *options, "--", *program],
                              capture_output=True, text=True, timeout=280,
                              env={**unprepared(), "COMMPOOL_EMULATOR": "devices=2"})

    def test_runs_the_unmodified_torch(self):
        result = self.start()
        self.assertEqual((result.returncode, result.stdout), (0, "2 [2, 2]\n"), result.stderr)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_runs_it_as_ranks(self):
        options = ["--oversubscribe", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
        result = self.start("mpirun", *options, "-np", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), ["2 [2, 2]", "2 [3, 3]"])

    def test_names_kernels_that_nobody_can_run(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "kernels.py")
            script.write_text(_KERNELS, encoding="utf-8")
            result = self.start(program=("env", f"TRITON_CACHE_DIR={folder}", f"TORCHINDUCTOR_CACHE_DIR={folder}",
                                         sys.executable, "-B", script))
        self.assertEqual(result.stdout, "RuntimeError\nInductorError\n", result.stderr)
        self.assertRegex(result.stderr, "there is no GPU to run the kernel twice\n(.*\n)*.*there is no GPU to run the "
                                        r"kernels of .*/triton_poi_fused_gelu_0\.cubin: compile with backend=")

    def start_ranks(self, text, **settings):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(text)
            script.flush()
            result = self.start(program=torchrun(2, script.name), **settings)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sorted(result.stdout.splitlines())

    def test_runs_torchrun_and_its_ranks(self):
        self.assertEqual(self.start_ranks(_SCRIPT), ["2 [2, 2]", "2 [3, 3]"])

    def test_moves_nothing_between_ranks_without_arithmetic(self):
        self.assertEqual(self.start_ranks(_GATHERS, options=("--kernels", "none")), ["0 137438953472"] * 2)
