"""`commpool emulate -- torchrun`: programs of many ranks train as the CPU does, without a report; one wait less in
PyTorch's own code, and there is one.
"""

import pathlib
import subprocess
import sys
import unittest

import removed_waits
from rank_processes import unprepared

_CLI = pathlib.Path(sys.argv[1]).absolute()
_PROGRAM = str(pathlib.Path(__file__).with_name("parallel_ranks.py"))
_FSDP = "torch.distributed.fsdp._fully_shard."
# Of each module, what one of its waits begins with, and the case that comes by it.
_LEFT_OUT = [
    ("fsdp", _FSDP + "_fsdp_collectives", "all_gather_stream.wait_stream("),
    ("fsdp", _FSDP + "_fsdp_collectives", "reduce_scatter_stream.wait_stream("),
    ("pipeline", "torch.distributed.pipelining.schedules", "w.wait("),
]
# Gloo adds their whole gradients, or the ranks' parts of a product, in another order. Whether a last bit shows that
# depends on the processor.
_IN_ANOTHER_ORDER = ("zero_redundancy", "tensor_parallel")


def _ranks(kind, *words, before=(), ranks=4):
    return subprocess.run([*before, sys.executable, "-B", "-m", "torch.distributed.run", "--standalone",
                           "--nproc-per-node", str(ranks), _PROGRAM, kind, *words],
                          env={**unprepared(), "OMP_NUM_THREADS": "1", "COMMPOOL_EMULATOR": f"devices={ranks}"},
                          capture_output=True, text=True, timeout=280, check=False)


class Parallel(unittest.TestCase):
    maxDiff = None

    def test_trains_as_the_cpu_does_without_a_report(self):
        wanted, found = _ranks("cpu"), _ranks("cuda", before=(_CLI, "emulate", "--"))
        self.assertNotIn("broken rule", found.stderr)
        self.assertEqual((wanted.returncode, found.returncode), (0, 0), found.stderr)
        for want, have in zip(wanted.stdout.splitlines(), found.stdout.splitlines(), strict=True):
            if want.startswith(_IN_ANOTHER_ORDER):
                self.assertEqual(*([f"{float.fromhex(number):.5f}" for number in line.split()[1:]]
                                   for line in (want, have)))
            else:
                self.assertEqual(have, want)

    def test_reports_a_wait_that_is_left_out(self):
        for case, module, begins in _LEFT_OUT:
            line = next(line for line, text in sorted(removed_waits.waits(module).items()) if text.startswith(begins))
            with self.subTest(module=module, line=line):
                result = _ranks("cuda", case, "--without", f"{module}:{line}", before=(_CLI, "emulate", "--"), ranks=2)
                self.assertIn(removed_waits.RUNS, result.stderr)
                self.assertIn("broken rule: race", result.stderr)


if __name__ == "__main__":
    unittest.main()
