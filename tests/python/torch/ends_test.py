"""Process groups that end before the pools over them: two ranks each, and no communicator ends with registrations."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

_RANKS = pathlib.Path(__file__).with_name("ends_ranks.py")
_WORLD = 2
# Each process runs these one after another.
_CASES = ("without_close", "with_live_tensors", "closed_before", "dropped", "reserved_afterwards", "of_several_pools",
          "of_another_group", "of_a_part", "of_a_mesh", "as_the_page_says", "as_the_reference_says",
          "as_the_reference_trains")


def said(*cases):
    """What each rank said in each case, rank 0 first; and what all wrote to stderr."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WORLD_SIZE": str(_WORLD)}
        processes = [subprocess.Popen([sys.executable, "-B", str(_RANKS), folder, *cases], text=True,
                                      env={**environment, "RANK": str(rank)}, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(_WORLD)]
        try:
            heard = [[process.stdout.readline() for _ in cases] for process in processes]
            errors = "".join(process.communicate(input="\n", timeout=200)[1] for process in processes)
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode for process in processes) or any("" in lines for lines in heard):
        raise AssertionError(f"{heard} {[process.returncode for process in processes]}:\n{errors}")
    return {case: [json.loads(lines[place])[1] for lines in heard] for place, case in enumerate(cases)}, errors


class EndsOfGroups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said, cls.errors = said(*_CASES)

    def test_break_no_rule(self):
        self.assertNotIn("broken rule", self.errors)

    def test_come_last_in_the_programs_of_the_pages_which_run_as_they_stand(self):
        for page in ("as_the_page_says", "as_the_reference_says"):
            self.assertEqual(self.said[page], [[True, True, False]] * _WORLD)
        self.assertEqual(self.said["as_the_reference_trains"], [True] * _WORLD)

    def test_end_the_registrations_of_their_pools_first(self):
        self.assertEqual(self.said["without_close"], ["done"] * _WORLD)
        self.assertEqual(self.said["of_several_pools"], [["done"] * 2] * _WORLD)
        self.assertEqual(self.said["dropped"], [None] * _WORLD)

    def test_leave_a_pool_with_live_tensors_that_says_so(self):
        for rank in self.said["with_live_tensors"]:
            self.assertRegex(rank, "FailedPrecondition: .*still has 1 live block: .*the largest: 1 MiB.*zero_grad")

    def test_are_no_matter_to_a_pool_that_closed_before(self):
        for refused in self.said["closed_before"]:
            self.assertRegex(refused, "FailedPrecondition: .*closed")

    def test_refuse_what_needs_the_group_and_let_the_pool_close(self):
        for reserved, closed, is_closed in self.said["reserved_afterwards"]:
            self.assertRegex(reserved, "^FailedPrecondition: pool 'gradients'.*process group .*its home, was destroyed")
            self.assertEqual((closed, is_closed), ("done", True))

    def test_that_are_not_the_home_end_alone(self):
        for words in self.said["of_another_group"]:
            self.assertRegex(" ".join(words), "^done FailedPrecondition: process group 1 was destroyed$")
        self.assertEqual(self.said["of_a_part"], [None] * _WORLD)

    def test_may_be_a_mesh_of_one_dimension(self):
        for offset, refused in self.said["of_a_mesh"]:
            self.assertEqual(offset, 0)
            self.assertRegex(refused, "InvalidArgument: a DeviceMesh of 2 dimensions is no group: pass one of them")


class EndsThatNobodyTells(unittest.TestCase):
    def test_are_refused_before_nccl_gets_the_communicator(self):
        heard, _ = said("after_a_shutdown_of_the_backend")  # the shutdown itself is what nobody may do
        for closed, reserved, abandoned, closed_then in heard["after_a_shutdown_of_the_backend"]:
            for refused in (closed, reserved):
                self.assertRegex(refused, "FailedPrecondition: .*process group .* was destroyed.*pool.abandon")
            self.assertEqual((abandoned, closed_then), ("done", "done"))

    def test_abandon_where_a_rank_does_not_come_in_time(self):
        heard, errors = said("beside_a_rank_that_does_not_come")
        self.assertNotIn("broken rule", errors)
        self.assertIn("ended its registrations alone", errors)
        self.assertIsNone(heard["beside_a_rank_that_does_not_come"][1])


class Losses(unittest.TestCase):
    def test_are_survived_by_the_program_of_the_page_as_it_stands(self):
        with unittest.mock.patch.dict(os.environ, TORCH_NCCL_ASYNC_ERROR_HANDLING="0"):
            heard, _ = said("as_the_reference_goes_on")
        self.assertEqual(heard["as_the_reference_goes_on"], [16 * 64 * 64, None])


class Signals(unittest.TestCase):
    def test_end_a_wait_over_the_store(self):
        heard, _ = said("interrupted_over_the_store")
        self.assertEqual(heard["interrupted_over_the_store"], ["interrupted", None])
