"""tools/traces/record.py runs programs on the emulator as Python would, and records their allocations."""

import lzma
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_RECORD = os.path.abspath("tools/traces/record.py")

# One of the tool's modules has the same name.
_MODULE = "SIZES = [1000, 3 << 20]\n"
_PROGRAM = """
import sys
import torch
import programs
torch.cuda.set_device(1)
kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in programs.SIZES]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    passing = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
del passing
torch.empty(77, dtype=torch.uint8, device="cuda:0")
print(__name__, *sys.argv[1:])
kept.append(None)
"""
_SWITCHES_OFF = "import torch; torch.zeros(5, device='cuda'); torch.cuda.memory._record_memory_history(enabled=None)\n"


class Record(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "programs.py").write_text(_MODULE, encoding="utf-8")

    def record(self, program, *words, **variables):
        (self.folder / "train.py").write_text(program, encoding="utf-8")
        return subprocess.run([sys.executable, _RECORD, "--out", "it.trace.xz", *words], cwd=self.folder, text=True,
                              env={**os.environ, **variables}, capture_output=True, timeout=200, check=False)

    def events(self, name):
        return lzma.decompress((self.folder / name).read_bytes()).decode().splitlines()[1:]

    def check(self, lines):
        self.assertEqual(lines[:4], ["a 0 1000 0", f"a 1 {3 << 20} 0", "a 2 5000 1", "f 2"])
        self.assertFalse([line for line in lines if line.startswith("a ")][3:], "another device's are not its own")

    def test_a_program_with_modules_and_options_that_fails_at_its_end(self):
        run = self.record(_PROGRAM + "sys.exit(7)", "train.py", "5000", "--out", "else")
        self.assertEqual(run.returncode, 7, run.stderr)
        self.assertEqual(run.stdout.splitlines()[0], "__main__ 5000 --out else")
        self.check(self.events("it.trace.xz"))

    def test_a_module_as_one_of_several_ranks(self):
        run = self.record(_PROGRAM + "raise OSError('no more')", "-m", "train", "5000", RANK="1", WORLD_SIZE="2")
        self.assertEqual(run.returncode, 1)
        self.assertIn("OSError: no more", run.stderr)
        self.check(self.events("it.rank1.trace.xz"))

    def test_a_program_that_switches_the_history_off_is_told(self):
        run = self.record(_SWITCHES_OFF, "train.py")
        self.assertEqual(run.returncode, 1)
        self.assertIn("the program switched the history of PyTorch's allocator off", run.stderr)
        self.assertFalse((self.folder / "it.trace.xz").exists())
