"""Symmetric pools over process groups, and groups that give NCCL's own memory back: two ranks, a process each, with the
emulated NCCL below torch's own backend."""

import unittest

from rank_processes import FOLDER, run_ranks, said_by_ranks

_RANKS = FOLDER / "group_ranks.py"


class Groups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.said = said_by_ranks(_RANKS, COMMPOOL_TORCH_CALL_LINES="1")
        # torch's older backend makes communicators late.
        cls.said_late = said_by_ranks(_RANKS, "late", COMMPOOL_TORCH_CALL_LINES="0", TORCH_DIST_USE_NCCL2="0")

    def test_have_windows_at_equal_offsets_backward_s_too(self):
        for over, said in zip(("TCP", "the store"), zip(*self.said["windows"])):
            offsets = said[0][0]
            self.assertEqual(len(set(offsets)), 2)
            self.assertEqual(list(said), [[offsets, True, 2.0, rank, True] for rank in range(2)], over)

    def test_without_a_communicator_say_what_to_do(self):
        for null, raised, mode in self.said_late["without_communicator"]:
            self.assertRegex(null, "has no NCCL communicator on device . yet .*is null.*device_id=")
            self.assertRegex(raised, r"has no NCCL communicator on device . yet \(no communicator\).*device_id=")
            self.assertEqual(mode, "symmetric")

    def test_exhausted_in_backward_raise_torch_s_error_with_the_bytes_to_reserve(self):
        for error, routed_after in self.said["exhausted"]:
            self.assertIn("CUDA out of memory. Tried to allocate 8.00 MiB. GPU", error)
            self.assertIn("reserve", error)
            self.assertTrue(routed_after)

    def test_that_differ_name_the_first_call_with_its_line(self):
        lines = _RANKS.read_text(encoding="utf-8").splitlines()
        for rank, (mark, nbytes) in enumerate([("# line A", "1,048,576"), ("# line B", "2,097,152")]):
            place = next(place for place, line in enumerate(lines, 1) if mark in line)
            error, closed = self.said["different"][rank]
            self.assertIn("rank 0 made allocate 1,048,576 bytes", error)
            self.assertIn(f"This rank allocated {nbytes} bytes at {_RANKS}:{place}", error)
            self.assertRegex(closed, rf"Asked for: {rank + 1} MiB at .*{_RANKS}:{place}\b")

    def test_that_differ_say_how_to_see_the_line_where_none_is_kept(self):
        for error, _ in self.said_late["different"]:
            self.assertIn("COMMPOOL_TORCH_CALL_LINES=1 in the environment names the Python line", error)

    def test_serve_step_after_step_with_reclaim_and_say_so_without(self):
        self.assertEqual(self.said["steps"], [[True]] * 2)

    def test_are_granted_to_devices_that_torch_made_peers(self):
        self.assertEqual(self.said["between_devices"], [[True, [[0, 3], [1, 4], [2, 5]]]] * 2)

    def test_run_the_proposal_s_program_over_nccl_s_memory(self):
        self.assertEqual(self.said["proposed"], [[True, 1, 1, True, 3.0, []]] * 2)

    def test_keep_ragged_tensors_out_by_their_sizes(self):
        self.assertEqual(self.said["sizes"], [[None, True, 16 << 20]] * 2)

    def test_of_which_there_are_several_are_registered_with_one_pool(self):
        self.assertEqual(self.said["several"], [[0, 2.0]] * 2)

    def test_that_keep_tensors_of_unawaited_collectives_are_named_where_a_pool_cannot_close(self):
        for error, left in self.said["unawaited"]:
            self.assertRegex(error, "still has 1 live block: .*the largest: .*optimizer.zero_grad.*"
                                    "async_op=True that nobody waited for. work.wait.., or one more collective")
            self.assertEqual(left, 0)

    def test_sleep_without_windows_and_wake_where_every_rank_has_memory(self):
        for asleep, slept, without_memory, still, offset, window, summed in self.said["sleeps"]:
            self.assertEqual(asleep[0], "NotFound")
            self.assertEqual(without_memory[0], "OutOfMemory")
            self.assertIn("making memory to wake failed on rank 1", without_memory[1])
            self.assertEqual((slept, still, offset, window, summed), (True, True, True, True, 6.0))

    def test_that_slept_under_a_captured_collective_are_reported_at_its_replay(self):
        said = said_by_ranks(_RANKS, "remapped", reported=True)["sleeps_under_a_graph"]
        for before, refused, reported, summed in said:
            self.assertEqual((before, refused[0], summed), ([], "FailedPrecondition", 2.0))
            self.assertIn("NCCL_LOCAL_REGISTER is not 0", refused[1])
            self.assertRegex("".join(reported), "a graph replays a collective over memory that was mapped anew")

    def test_are_outlived_by_their_tensors(self):
        for refused, of_no_group, of_no_pool in self.said["outlived"]:
            self.assertRegex(refused, "pool outlived .*live")
            self.assertEqual((of_no_group, of_no_pool), (3.0, 4.0))

    def test_that_torch_s_watchdog_gives_up_are_abandoned_by_its_hook(self):
        self.assertEqual(said_by_ranks("watchdog_ranks.py")["watched"], [True, 1, True])

    def test_that_fail_while_a_program_exits_leave_its_exit_code_and_call_no_hook(self):
        (code, _, errors), = run_ranks("exiting_rank.py", 1)
        self.assertEqual(code, 7, errors)
        self.assertIn("CUDA error during", errors)
        self.assertNotIn("a hook of the pool was called", errors)

    def test_that_are_aborted_are_abandoned_before(self):
        for with_hook, reserved, held in self.said["aborted"]:
            self.assertEqual((with_hook, reserved, held), (True, 0, 0))


class SleepingGroups(unittest.TestCase):
    def test_come_back_and_work_with_their_pools(self):
        said = said_by_ranks("sleeping_group_ranks.py", "sleeps_and_wakes", COMMPOOL_EMULATOR="nccl=2.30.7")
        self.assertEqual(said["sleeps_and_wakes"], [[True, True, False, 4.0, []]] * 2)

    def test_of_an_older_nccl_say_so(self):
        for message in said_by_ranks("sleeping_group_ranks.py", "of_an_older_nccl")["of_an_older_nccl"]:
            self.assertRegex(message, "communicators that sleep need NCCL 2.29.7; .* is 2.28.9")
