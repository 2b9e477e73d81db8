"""The main job on several hosts: namespaces of this machine, started by mpirun with a hostfile over TCP."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

_HOSTS = os.path.abspath("tests/hosts/hosts.sh")
_PROGRAM = os.path.abspath("tests/hosts/hosts_program")
_EXAMPLES = os.path.abspath("examples")
_OUT_OF_MEMORY, _REMOTE_FAILURE, _FAILED_PRECONDITION = 2, 9, 5
_NOTHING_UNSEEN = {"NCCL_LOCAL_REGISTER": "0", "NCCL_GRAPH_REGISTER": "0"}


def _namespaces():
    """The command that runs another in namespaces of its own."""
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount"]


def _why_not():
    """Why there can be no hosts here; empty where there can."""
    for tool in ("unshare", "ip", "mpirun"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        agent = os.path.join(folder, "agent")
        tried = subprocess.run([*_namespaces(), _HOSTS, "1", "1", folder, agent, "host1", "true"],
                               capture_output=True, text=True, timeout=60)
    return "" if tried.returncode == 0 else "no namespaces can be made: " + tried.stderr.strip()


_WHY_NOT = _why_not()


@unittest.skipIf(_WHY_NOT, _WHY_NOT)
class Hosts(unittest.TestCase):
    def run_on(self, hosts, slots, *command, options=(), **variables):
        # Open MPI's session folder holds sockets, whose paths have to be short.
        environment = {**os.environ, "TMPDIR": "/tmp", "COMMPOOL_DRIVER": "emulated", **variables}
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            mpirun = [
                "mpirun", "--allow-run-as-root", "--hostfile", f"{folder}/hosts", "-np", str(hosts * slots),
                "--mca", "plm_rsh_agent", f"{folder}/agent", "--mca", "orte_abort_print_stack", "0",
                "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
                "--mca", "btl", "tcp,self", *options
            ]
            for name in variables:
                mpirun += ["-x", name]
            return subprocess.run([*_namespaces(), _HOSTS, str(hosts), str(slots), folder, *mpirun, *command],
                                  env=environment, capture_output=True, text=True, timeout=120)

    def assert_lives(self, result, hosts, slots, network):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for rank in range(hosts * slots):
            here = rf"rank {rank}: host{rank // slots + 1}, device {rank % slots}, "
            address = rf"10\.{network}\.0\.{rank // slots + 1}:\d+\n"
            self.assertRegex(result.stdout, here + "listens at " + address)
            self.assertIn(f"rank {rank}: every sum is right, ", result.stdout)
        self.assertRegex(result.stdout, rf"rank 0: NCCL's root is at .*10\.{network}\.0\.1:\d+ ")

    def test_a_pool_lives_across_two_hosts(self):
        self.assert_lives(self.run_on(2, 2, _PROGRAM, "live"), 2, 2, 77)

    def test_a_pool_lives_across_three_hosts(self):
        self.assert_lives(self.run_on(3, 1, _PROGRAM, "live"), 3, 1, 77)

    def test_the_interface_that_is_named_carries_agreement_and_nccl(self):
        for variable in ("COMMPOOL_INTERFACE", "NCCL_SOCKET_IFNAME"):
            self.assert_lives(self.run_on(2, 1, _PROGRAM, "live", **{variable: "ib"}), 2, 1, 78)

    def run_with_a_death(self, mode):
        # mpirun ends the job when a rank dies: later than the others, which have heard of it by themselves.
        result = self.run_on(2, 2, _PROGRAM, mode, options=["--mca", "odls_base_sigkill_timeout", "5"])
        self.assertNotEqual(result.returncode, 0)
        return result

    def test_a_rank_killed_in_a_reserve_is_named_by_the_others(self):
        result = self.run_with_a_death("die")
        for rank in range(3):
            lines = [line for line in result.stdout.splitlines() if line.startswith(f"rank {rank}: reserve failed")]
            self.assertEqual(len(lines), 1, result.stdout + result.stderr)
            self.assertRegex(lines[0], rf"failed \({_REMOTE_FAILURE}\): .* rank 3 was lost .*10\.77\.0\.2:\d+")
        self.assertIsNone(re.search("rank 3: reserve failed", result.stdout))

    def test_a_pool_sleeps_and_wakes_on_two_hosts_and_all_hear_of_one_without_memory(self):
        result = self.run_on(2, 2, _PROGRAM, "sleep")
        for rank in range(4):
            failed, woken = self.lines_of(result, rank)
            self.assertRegex(failed, rf"wake failed \({_OUT_OF_MEMORY}\): .*making memory to wake failed on rank 3")
            self.assertRegex(woken, rf"slept and woke, {1 if rank == 0 else 2} segments registered")

    # What NCCL registers unseen is switched off by both variables; without windows that is all that a pool could have.
    def sleep_under_a_graph(self, emulator, **variables):
        return self.run_on(2, 2, _PROGRAM, "captured", COMMPOOL_EMULATOR=emulator, **variables)

    def test_a_captured_gather_holds_over_sleep_where_nvlink_joins_the_hosts(self):
        result = self.sleep_under_a_graph("hosts=linked", **_NOTHING_UNSEEN)
        for rank in range(4):
            self.assertEqual(self.lines_of(result, rank), [f"rank {rank}: gathered after a sleep, by the graph"])

    def test_sleep_under_graphs_is_refused_on_all_ranks_where_proxies_hold_windows_for_other_hosts(self):
        result = self.sleep_under_a_graph("hosts=network,nccl=2.30.7", **_NOTHING_UNSEEN)
        self.assert_refused(result, "rank 2 cannot sleep: .*graphs = DISCARDED accepts that.*"
                            "communicator 0: proxies of NCCL hold windows for the network")

    def test_sleep_under_graphs_is_refused_on_all_ranks_of_hosts_where_nccl_may_register_memory_unseen(self):
        result = self.sleep_under_a_graph("hosts=apart")
        self.assert_refused(result, "rank 0 cannot sleep: .*NCCL_LOCAL_REGISTER is not 0")

    def assert_refused(self, result, why):
        for rank in range(4):
            refused, gathered = self.lines_of(result, rank)
            self.assertRegex(refused, rf"rank {rank}: sleep failed \({_FAILED_PRECONDITION}\): .*{why}")
            self.assertEqual(gathered, f"rank {rank}: gathered after a sleep, by another graph")

    def test_a_rank_that_dies_asleep_is_named_by_the_others_which_have_what_they_held(self):
        result = self.run_with_a_death("die_asleep")
        for rank in range(3):
            said = result.stdout + result.stderr
            self.assertRegex(said, rf"rank {rank}: wake failed \({_REMOTE_FAILURE}\): .* rank 3 was lost ")
            self.assertIn(f"rank {rank}: has what it held", said)

    def test_ranks_of_two_hosts_agree_over_mpi(self):
        self.assert_lives(self.run_on(2, 2, _PROGRAM, "mpi"), 2, 2, 77)

    def lines_of(self, result, rank):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        words = re.compile(rf"rank {rank}: (?!host|NCCL's root)")
        return [line for line in result.stdout.splitlines() if words.match(line)]

    def line_of(self, result, rank):
        lines = self.lines_of(result, rank)
        self.assertEqual(len(lines), 1, result.stdout + result.stderr)
        return lines[0]

    def test_a_rank_that_does_not_come_is_named_over_mpi(self):
        result = self.run_on(2, 2, _PROGRAM, "absent")
        for rank in range(3):
            self.assertIn("rank 3 did not come", self.line_of(result, rank))
        self.assertEqual(self.lines_of(result, 3), [])

    def test_loopback_is_refused_to_ranks_of_several_hosts(self):
        result = self.run_on(2, 2, _PROGRAM, "loopback")
        for rank in range(4):
            for part in ("127.0.0.1:", "ranks 2, 3 run elsewhere", "the interface lo", "COMMPOOL_INTERFACE"):
                self.assertIn(part, self.line_of(result, rank))

    def test_loopback_does_for_ranks_of_one_host(self):
        self.assertEqual(self.lines_of(self.run_on(1, 2, _PROGRAM, "loopback"), 0), ["rank 0: "])

    def test_the_examples_run_on_two_hosts(self):
        for example, line in (("symmetric_all_reduce", "4 ranks, 3 batches of 4 MiB at offset 0 of a window:"),
                              ("mpi_agreement", "4 ranks agreed over MPI: 2 segments of 64 MiB,")):
            result = self.run_on(2, 2, f"{_EXAMPLES}/{example}")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn(line + " every sum is right", result.stdout)

    def test_training_on_four_hosts_survives_a_rank_and_takes_it_in_again(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            result = subprocess.run([*_namespaces(), _HOSTS, "4", "1", folder, f"{_EXAMPLES}/survive_a_loss",
                                     "--ranks", "4", "--hosts", "4", "--agent", f"{folder}/agent"],
                                    env={**os.environ, "COMMPOOL_DRIVER": "emulated"},
                                    capture_output=True, text=True, timeout=240)
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, 0, said)
        steps = re.findall(r"step +(\d+)  loss ([\d.]+)  (\d) ranks", result.stdout)
        self.assertEqual([int(ranks) for _, _, ranks in steps], [4, 4, 4, 4, 3, 3, 4, 4, 4, 4, 4], said)
        losses = [float(loss) for _, loss, _ in steps]
        self.assertLess(losses[-1], losses[4], said)
        self.assertLess(losses[4], losses[0], said)
        for rank in range(4):
            self.assertRegex(said, rf"rank {rank}: (\d+) MiB free before, \1 MiB after, 0 MiB held by NCCL")


if __name__ == "__main__":
    unittest.main()
