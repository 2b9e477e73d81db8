"""What measures registration: advise, bench registration, bench agreement and allreduce --compare, on the emulator."""

import itertools

import cli

_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")


class Advise(cli.CommandTest):
    def test_advises_windows_for_small_sizes_and_says_so_as_scopes_take_it(self):
        report = self.report("advise", "--bytes", "8K:1M", ranks=4)
        self.assertTrue(report["modelled"])
        self.assertEqual(report["without"], [])
        self.assertEqual(len(report["rows"]), 3 * 2 * 8)
        for row in report["rows"]:
            # In place each rank's part lies at an offset of its own, which windows do not have.
            apart = row["place"] == "in place" and row["collective"] != "all-reduce"
            self.assertEqual(sorted(row["time_us"]), ["local", "plain"] + ([] if apart else ["window"]))
        wanted = ("all-reduce", "out of place")
        ranges = [one for one in report["ranges"] if (one["collective"], one["place"]) == wanted]
        self.assertEqual((ranges[0]["kind"], ranges[0]["min_bytes"]), ("window", 8192))
        self.assertEqual(ranges[-1]["kind"], "plain")  # of the model: it loses from 1 MiB on
        for before, after in zip(ranges, ranges[1:]):
            self.assertEqual(before["max_bytes"] + 1, after["min_bytes"])

    def test_the_table_says_that_times_are_modelled(self):
        result = self.ends(0, "advise", "--bytes", "8K", ranks=2)
        self.assertIn("times are a model's", result.stdout)
        for collective, place in itertools.product(_COLLECTIVES, ("out of place", "in place")):
            self.assertIn(f"{collective} of floats, {place}\n", result.stdout)
        self.assertIn(" sizes 8192, 8192 ", result.stdout)
        self.assertIn("use_pool(pool, sizes=(MIN, MAX))", result.stdout)

    def test_does_without_windows_where_nccl_has_none(self):
        report = self.report("advise", "--bytes", "8K", ranks=2, COMMPOOL_EMULATOR="nccl=2.19.3")
        self.assertEqual(len(report["without"]), 1)
        self.assertTrue(report["without"][0].startswith("window: "))
        self.assertEqual(sorted(report["rows"][0]["time_us"]), ["local", "plain"])

    def test_refuses_one_rank_and_bad_sizes(self):
        self.ends(3, "advise")
        for arguments in (["--bytes", "much"], ["--bytes", "1M:8K"], ["--bytes", "4"], ["--rounds", "0"]):
            self.assertNotEqual(cli.run("advise", *arguments, ranks=2).returncode, 0, arguments)


class AdviseUnderCompute(cli.CommandTest):
    def test_measures_every_kind_on_all_ranks_and_zero_sms_where_nccl_only_copies(self):
        # One report: ranks agree on the times, and the first one tells them.
        report = self.report("advise", "--under-compute", "--bytes", "64K:128K", ranks=2)
        self.assertEqual((report["modelled"], report["ranks"], report["without"]), (True, 2, []))
        self.assertIn("the emulator runs no kernels", report["compute"])
        self.assertEqual([(row["collective"], row["bytes"]) for row in report["rows"]],
                         list(itertools.product(_COLLECTIVES, (65536, 131072))))
        for row in report["rows"]:
            copies = ["zero-SM"] if row["collective"] == "all-gather" else []
            self.assertEqual(sorted(row["kinds"]), ["local", "plain", "window"] + copies)
            self.assertIn(row["least"], row["kinds"])
            for times in row["kinds"].values():
                self.assertTrue(times["low"] <= times["added_us"] <= times["high"], times)
                self.assertGreater(times["alone_us"], 0)

    def test_the_table_says_that_nothing_is_computed(self):
        result = self.ends(0, "advise", "--under-compute", "--bytes", "64K", ranks=2)
        self.assertIn("times are a model's", result.stdout)
        self.assertIn("# compute: a memset: the emulator runs no kernels", result.stdout)
        self.assertRegex(result.stdout, r"all-gather +65536 zero-SM ")

    def test_does_without_kinds_that_nccl_lacks(self):
        without = self.report("advise", "--under-compute", "--bytes", "64K", ranks=2,
                              COMMPOOL_EMULATOR="nccl=2.19.3")["without"]
        self.assertEqual([reason.partition(":")[0] for reason in without], ["window", "zero-SM"])
        self.assertIn("copy engines since 2.28.3", without[1])


class BenchRegistration(cli.CommandTest):
    def test_a_pool_registers_its_segment_once_and_calls_nccl_no_more(self):
        report = self.report("bench", "registration", ranks=2)
        pool, one_by_one = report["rows"]
        self.assertEqual((report["tensors"], report["communicators"]), (100, 2))
        self.assertEqual((pool["registrations"], one_by_one["registrations"]), (2, 200))
        self.assertEqual(pool["step"]["nccl_calls"], 0)
        # ncclMemAlloc and two windows for each tensor; a step ends what was there and makes it anew.
        self.assertEqual(one_by_one["setup"]["nccl_calls"], 300)
        self.assertEqual(one_by_one["step"]["nccl_calls"], 600)
        self.assertGreater(one_by_one["setup"]["us"], 50 * pool["setup"]["us"])  # modelled, not measured

    def test_tells_nccls_set_up_of_a_communicator_apart_from_the_pools_steps(self):
        report = self.report("bench", "registration", "--tensors", "3", ranks=2)
        steps = {step["step"]: step["cost"] for step in report["steps"]}
        self.assertEqual(report["step_bytes"], 2 << 20)
        for key in ("first_all_gather", "all_gather", "nccl_memory", "first_window", "window", "create", "create_again",
                    "agree", "first_reserve", "reserve", "memory", "windows_in_turn", "windows_in_group",
                    "communicators_in_turn", "communicators_in_group", "by_hand", "pool"):
            self.assertGreaterEqual(steps[key]["us"], 0, key)
        # A reserve registers one window; an agreement and memory alone call NCCL for nothing.
        self.assertEqual((steps["agree"]["nccl_calls"], steps["memory"]["nccl_calls"]), (0, 0))
        self.assertEqual(steps["windows_in_turn"]["nccl_calls"], 4)
        self.assertEqual(steps["windows_in_group"]["nccl_calls"], 6)
        for key in ("pool_to_by_hand", "group_to_turn", "group_to_turn_of_two"):
            low, high = report[key + "_interval"]
            self.assertTrue(0 < low <= report[key] <= high, key)
        # A pool makes what is made by hand, and agreements in addition, which the model has for microseconds.
        self.assertTrue(0 < report["pool_to_by_hand"] < 1.02, report["pool_to_by_hand"])

    def test_records_what_it_measured(self):
        record, result = self.record("bench", "registration", "--tensors", "3", ranks=2)
        self.assertIn("3 tensors of 256 KiB on 2 communicators, modelled microseconds", result.stdout)
        self.assertEqual([row["way"] for row in record["results"]["rows"]], ["pool", "one by one"])

    def test_refuses_what_it_cannot_do(self):
        self.ends(3, "bench", "registration", COMMPOOL_EMULATOR="nccl=2.19.3")
        self.each_ends(4, "bench registration", "--tensors 0", "--bytes 0", "--bytes 2G", "--steps 0")


class BenchAgreement(cli.CommandTest):
    def test_tells_the_time_of_a_round(self):
        report = self.report("bench", "agreement", "--rounds", "20", ranks=4)
        self.assertEqual((report["ranks"], report["rounds"]), (4, 20))
        self.assertGreaterEqual(report["p99_us"], report["median_us"])
        self.assertGreater(report["median_us"], 0)
        self.assertEqual(report["pools"], 4)
        self.assertGreater(min(report["pools_in_turn_us"], report["pools_in_one_call_us"]), 0)

    def test_the_table_names_its_columns(self):
        result = self.ends(0, "bench", "agreement", "--rounds", "5")
        self.assertIn("median us", result.stdout)
        self.ends(4, "bench", "agreement", "--rounds", "0")

    def test_simulated_ranks_send_no_more_where_there_are_more_of_them(self):
        report = self.report("bench", "agreement", "--simulate", "8,16,32", "--rounds", "20", "--pools", "1")
        rows = report["simulated"]
        self.assertEqual([row["ranks"] for row in rows], [8, 16, 32])
        self.assertEqual([row["busiest_messages"] for row in rows], [2 * (ranks - 1) for ranks in (8, 16, 32)])
        self.assertEqual({row["other_messages"] for row in rows}, {2})
        self.assertEqual(len({row["other_bytes"] for row in rows}), 1)
        self.assertTrue(1 < report["slope_of_bytes"] <= 1.1, report["slope_of_bytes"])

    def test_several_pools_in_one_call_take_the_round_of_one(self):
        report = self.report("bench", "agreement", "--simulate", "8", "--rounds", "10", "--pools", "3")
        one, in_turn, together = report["simulated"]
        for key, found in (("pools", [1, 3, 3]), ("calls", ["one call", "one call each", "one call"]),
                           ("busiest_messages", [14, 42, 14]), ("other_messages", [2, 6, 2])):
            self.assertEqual([row[key] for row in (one, in_turn, together)], found, key)
        self.assertTrue(one["other_bytes"] < together["other_bytes"] <= in_turn["other_bytes"] + 3 * 50, together)

    def test_more_ranks_than_descriptors_are_refused(self):
        command = 'ulimit -n 1024 && exec "$0" bench agreement --simulate 9999'
        self.refuses(3, "the system allows 1024", "-c", command, cli.CLI, program="sh")


class Compare(cli.CommandTest):
    def test_a_pools_buffers_are_as_fast_as_those_made_by_hand(self):
        for kind, name in (("none", "plain"), ("local", "local"), ("window", "window")):
            report = self.report("allreduce", "--register", kind, "--compare", "by-hand", "--bytes", "512K:4M", ranks=2)
            self.assertEqual([row["other"] for row in report["rows"]], [f"{name} by hand"] * 4)
            self.assertGreaterEqual(report["least_ratio"], 0.99)  # modelled, not measured

    def test_scopes_choose_as_well_as_the_best_kind(self):
        report = self.report("allreduce", "--compare", "scopes", "--bytes", "8K:1M", ranks=4)
        # The model's windows win below 1 MiB and lose there: both were routed to their pools.
        self.assertEqual(report["rows"][0]["other"], "best: window")
        self.assertNotEqual(report["rows"][-1]["other"], "best: window")
        self.assertGreaterEqual(report["least_ratio"], 0.98)  # modelled, not measured

    def test_the_table_ends_with_the_least_ratio(self):
        result = self.ends(0, "allreduce", "--compare", "by-hand", "--bytes", "8K", ranks=2)
        self.assertRegex(result.stdout, r"\nleast 1\.000, at 8192 bytes\n$")

    def test_refuses_what_it_cannot_compare(self):
        self.each_ends(3, "allreduce --compare by-hand", "--backing cuda", "--location host-numa")
        self.ends(4, "allreduce", "--compare", "by-foot")
