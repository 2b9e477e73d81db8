"""The proof of NVLS skips visibly, and judges what ranks say."""

import contextlib
import io
import os
import subprocess
import sys
import unittest

import hardware_nvls


def program(**variables):
    environment = {name: value for name, value in os.environ.items() if name != "NCCL_NVLS_ENABLE"}
    return subprocess.run([sys.executable, "-B", hardware_nvls.__file__], env={**environment, **variables},
                          capture_output=True, text=True, timeout=60, check=False)


def said(inside, outside, eligible=True):
    rank = {"inside": {"kernels": inside, "eligible": [eligible, ""]},
            "outside": {"kernels": outside, "eligible": [False, "of no pool"]}}
    return {"eagerly": [rank, rank]}


class Skips(unittest.TestCase):
    def test_where_multicast_is_switched_off_or_not_allowed(self):
        for variables, reason in (({"NCCL_NVLS_ENABLE": "0"}, "NCCL_NVLS_ENABLE is 0"), ({}, "is not set")):
            result = program(**variables)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn(f"skipped: NCCL_NVLS_ENABLE {reason.removeprefix('NCCL_NVLS_ENABLE ')}", result.stdout)
            self.assertEqual(len(result.stdout.splitlines()), 1)


class Judges(unittest.TestCase):
    def holds(self, *arguments, **words):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            holds = hardware_nvls.judged(said(*arguments, **words))
        self.assertEqual(holds, "failed" not in text.getvalue())
        return holds

    def test_by_the_names_of_kernels(self):
        ring = [[False, "RING"]]
        self.assertTrue(self.holds([[True, "AllReduce_AGxLLMC_R"]], ring))
        self.assertFalse(self.holds([[True, "AllReduce_AGxLL_R"]], ring))
        self.assertFalse(self.holds([], ring))
        self.assertFalse(self.holds([[True, "AllReduce_AGxLLMC_R"]], ring, eligible=False))


if __name__ == "__main__":
    unittest.main()
