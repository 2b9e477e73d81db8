"""`commpool emulate -- torchrun`: programs of many ranks train as the CPU does, without a report; one wait less in
PyTorch's own code, and there is one.
"""

import pathlib
import subprocess
import sys
import unittest

import removed_waits
from rank_processes import FOLDER, torchrun, unprepared

_EMULATED = (pathlib.Path(sys.argv[1]).absolute(), "emulate", "--")
_FSDP = "torch.distributed.fsdp._fully_shard."
# Of each module, what one of its waits begins with, and the case that comes by it.
_LEFT_OUT = [
    ("fsdp", _FSDP + "_fsdp_collectives", "all_gather_stream.wait_stream("),
    ("fsdp", _FSDP + "_fsdp_collectives", "reduce_scatter_stream.wait_stream("),
    ("pipeline", "torch.distributed.pipelining.schedules", "w.wait("),
]
# Nothing is added over ranks there. Else gloo adds in another order where ranks are more than two, and whether a last
# bit of a loss shows that depends on the processor.
_WITHOUT_SUMS = ("pipeline", "zero_bubble")
_TOLERANCE = 1e-5  # of the loss; a step that reads what is not there yet is off by much more


def _ranks(kind, *words, before=(), ranks=4):
    return subprocess.run([*before, *torchrun(ranks, FOLDER / "parallel_ranks.py", kind, *words)],
                          env={**unprepared(), "OMP_NUM_THREADS": "1", "COMMPOOL_EMULATOR": f"devices={ranks}"},
                          capture_output=True, text=True, timeout=280, check=False)


class Parallel(unittest.TestCase):
    maxDiff = None

    def _losses(self, ranks):
        """The losses of each case as the CPU has them, and as the emulated GPUs have them."""
        wanted, found = _ranks("cpu", ranks=ranks), _ranks("cuda", before=_EMULATED, ranks=ranks)
        self.assertNotIn("broken rule", found.stderr)
        self.assertEqual((wanted.returncode, found.returncode), (0, 0), wanted.stderr + found.stderr)
        return [{name: [float.fromhex(loss) for loss in losses] for name, *losses in map(str.split, lines)}
                for lines in (wanted.stdout.splitlines(), found.stdout.splitlines())]

    def test_trains_two_ranks_as_the_cpu_does_to_the_bit_without_a_report(self):
        wanted, found = self._losses(ranks=2)
        self.assertEqual(len(wanted), 8)
        self.assertEqual(found, wanted)

    def test_trains_four_ranks_as_the_cpu_does_without_a_report(self):
        wanted, found = self._losses(ranks=4)
        self.assertEqual(len(wanted), 8)
        self.assertEqual(found.keys(), wanted.keys())
        for name, losses in wanted.items():
            tolerance = 0 if name in _WITHOUT_SUMS else _TOLERANCE
            for want, have in zip(losses, found[name], strict=True):
                self.assertLessEqual(abs(have - want), tolerance * want, name)

    def test_reports_a_wait_that_is_left_out(self):
        for case, module, begins in _LEFT_OUT:
            line = next(line for line, text in sorted(removed_waits.waits(module).items()) if text.startswith(begins))
            with self.subTest(module=module, line=line):
                result = _ranks("cuda", case, "--without", f"{module}:{line}", before=_EMULATED, ranks=2)
                self.assertIn(removed_waits.RUNS, result.stderr)
                self.assertIn("broken rule: race", result.stderr)
