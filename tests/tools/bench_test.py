"""commpool bench hot, threshold, make, growth, memory and sleep: what they print, not how fast it is."""

import cli

_QUICK = ["--rounds", "1", "--round-ms", "0.1"]
_ONE = ["--sizes", "512", "--live", "1", "--threads", "1"]


class Hot(cli.CommandTest):
    def test_tells_sizes_live_blocks_and_threads_beside_mimalloc(self):
        report = self.report("bench", "hot", "--sizes", "512,64M", "--live", "1,10", "--threads", "1,2", *_QUICK)
        self.assertGreater(report["mimalloc_pair_ns"], 0)
        for contender in (report, report["mimalloc"]):
            self.assertEqual(sorted(contender["pair_ns"]), ["512", "67108864"])
            self.assertEqual(sorted(contender["live"]), ["1", "10"])
            self.assertEqual(sorted(contender["threads"]), ["1", "2"])
            self.assertTrue(all(ns > 0 for ns in contender["pair_ns"].values()))

    def test_replaces_large_blocks_at_random_on_one_stream_and_on_two(self):
        for mode in ("fixed", "expandable"):
            report = self.report("bench", "hot", *_ONE, "--mode", mode, *_QUICK)
            for contender in (report, report["mimalloc"], report["ratio_to"]["mimalloc"]):
                self.assertEqual(sorted(contender["mix"]), ["1", "2"])
            self.assertGreater(min(report["mix"].values()), 0)

    def test_has_pinned_memory_beside_it_and_then_no_mix(self):
        report = self.report("bench", "hot", "--pinned", "--sizes", "4K,64K", "--live", "1", "--threads", "1", *_QUICK)
        self.assertEqual(sorted(report["ratio_to"]["commpool_pinned"]["pair_ns"]), ["4096", "65536"])
        self.assertGreater(min(report["commpool_pinned"]["pair_ns"].values()), 0)
        self.assertEqual(report["mix"], {})

    def test_tells_in_which_interval_the_rounds_lie(self):
        report = self.report("bench", "hot", "--sizes", "512,64K", "--live", "1,10", "--threads", "1",
                             "--route", "none", "--rounds", "3", "--round-ms", "5")
        ratios = report["ratio_to"]["mimalloc"]
        to_smallest = report["ratio_to_mimalloc_pair"]
        self.assertEqual(to_smallest["512"], ratios["pair_ns"]["512"])
        self.assertNotEqual(to_smallest["65536"], ratios["pair_ns"]["65536"])
        spreads = [ratios["pair_ns"]["512"], to_smallest["65536"], ratios["live"]["1"], ratios["threads"]["1"],
                   report["live_added_ns"]["10"], report["routes"]["none"]["added_spread_ns"]]
        for spread in spreads:
            self.assertTrue(spread["low"] <= spread["median"] <= spread["high"], spread)
        self.assertGreater(ratios["pair_ns"]["512"]["low"], 0)
        self.assertNotIn("1", report["live_added_ns"])

    def test_tells_what_each_route_adds_to_a_pair_by_name(self):
        routes = ["nested", "none", "process", "sizes", "stream", "thread"]
        found = self.report("bench", "hot", *_ONE, "--route", ",".join(routes), *_QUICK)["routes"]
        self.assertEqual(sorted(found), routes)
        for name, route in found.items():
            self.assertGreater(min(route["pair_ns"], route["by_name_ns"]), 0, name)
            self.assertEqual(route["scope_ns"] > 0, name != "none", name)
        self.ends(4, "bench", "hot", "--route", "unknown")

    def test_the_table_names_who_is_compared(self):
        result = self.ends(0, "bench", "hot", "--sizes", "4K", "--live", "10", "--threads", "1", *_QUICK)
        for word in ("commpool", "streams may die", "mimalloc", "4 KiB", "10 live", "1 threads", "2 streams"):
            self.assertIn(word, result.stdout)

    def test_records_what_it_measured(self):
        record, _ = self.record("bench", "hot", *_ONE, *_QUICK)
        self.assertIn("512", record["results"]["pair_ns"])

    def test_bad_arguments_are_errors(self):
        self.each_ends(4, "bench hot --round-ms 0.1", "--sizes much", "--sizes 0", "--threads 0", "--live 0",
                       "--live-bytes -1", "--rounds 0", "--mix 0", "--mode symmetric", "--sizes 200G --threads 1")

    def test_pytorch_without_a_gpu_is_refused(self):
        self.refuses(3, "refused: ", "bench", "hot", "--torch-library", "none.so")


class Memory(cli.CommandTest):
    _KINDS = {"vmm": "cuMemCreate", "cuda": "cuMemAlloc", "nccl": "ncclMemAlloc", "pinned": "cuMemHostAlloc",
              "vmm host-numa": "cuMemCreate"}
    _ON_GPU = [("gpu read", 4 << 20), ("gpu write", 4 << 20), ("gpu read", 4096), ("gpu write", 4096)]
    _TO_PEER = [("to peer", 4 << 20), ("to peer", 4096)]
    _ON_CPU = [("cpu read", 4 << 20), ("cpu write", 4 << 20), ("cpu load", 8)]

    def measure(self, machine):
        report = self.report("bench", "memory", "--bytes", "4M", "--rounds", "1", COMMPOOL_EMULATOR=machine)
        self.assertTrue(report["emulated"])
        return report

    @staticmethod
    def uses_of(report, kind):
        return [(row["use"], row["bytes"]) for row in report["rows"] if row["memory"] == kind]

    def test_tells_each_use_of_each_kind_beside_the_raw_call(self):
        report = self.measure("machine=two")
        self.assertEqual({row["memory"]: row["raw_call"] for row in report["rows"]}, self._KINDS)
        for kind in ("vmm", "cuda", "nccl"):
            self.assertEqual(self.uses_of(report, kind), self._ON_GPU + self._TO_PEER)
        for kind in ("pinned", "vmm host-numa"):
            self.assertEqual(self.uses_of(report, kind), self._ON_GPU + self._ON_CPU)
        for row in report["rows"]:
            self.assertGreater(min(row["pool_us"], row["raw_us"], row["pool_gb_s"], row["raw_gb_s"]), 0, row)
            self.assertTrue(row["interval"][0] <= row["ratio"] <= row["interval"][1], row)

    def test_says_what_the_pools_memory_is_and_who_knows_its_node(self):
        for machine, is_so in (("machine=two", "host NUMA node 0, file descriptor handles, node as its handles say"),
                               ("machine=one,host_numa=denied",
                                "host NUMA node 0, bound and registered, no handle, node not proven")):
            rows = self.measure(machine)["rows"]
            self.assertEqual({row["pool_memory"] for row in rows if row["memory"] == "vmm host-numa"}, {is_so})

    def test_has_no_copies_between_devices_that_do_not_reach_each_other(self):
        self.assertEqual(self.uses_of(self.measure("machine=apart"), "vmm"), self._ON_GPU)

    def test_sets_pinned_memory_beside_host_memory_that_the_driver_denies(self):
        rows = self.measure("machine=one,host_numa=denied")["rows"]
        calls = {row["raw_call"] for row in rows if row["memory"] == "vmm host-numa"}
        self.assertEqual(calls, {"cuMemHostAlloc"})

    def test_says_why_a_kind_is_not_here(self):
        [refused] = self.measure("machine=one,nccl=2.18.5")["refused"]
        self.assertEqual(refused["memory"], "nccl")
        self.assertIn("needs NCCL 2.19", refused["reason"])

    def test_the_table_says_that_the_emulator_tells_no_speed(self):
        result = self.ends(0, "bench", "memory", "--bytes", "2M", "--rounds", "1", COMMPOOL_EMULATOR="machine=one")
        self.assertIn("nothing here tells how fast memory is", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^# vmm host-numa: host NUMA node 0, .*, node as its handles say$")

    def test_bad_arguments_are_errors(self):
        self.each_ends(4, "bench memory", "--bytes much", "--bytes 900G", "--rounds 0")


class Growth(cli.CommandTest):
    def test_makes_the_raw_calls_and_no_other_for_one_two_and_four_devices(self):
        rows = self.report("bench", "growth", "--bytes", "24M", "--page", "2M", "--rounds", "2")["rows"]
        kinds = (("segment", 1), ("again", 1), ("pages", 12))
        self.assertEqual([(row["of"], row["devices"], row["pages"]) for row in rows],
                         [(of, devices, pages) for devices in (1, 2, 4) for of, pages in kinds])
        for row in rows:
            # Addresses, memory, mapping, access; in pages of a reserved range access once for all of them.
            self.assertEqual(row["raw_calls"], 12 + 12 + 1 if row["of"] == "pages" else 4, row)
            # Of a segment that comes again the pool has kept the addresses.
            self.assertEqual(row["pool_calls"], row["raw_calls"] - (row["of"] == "again"), row)
            self.assertEqual("kept_ratio" in row, row["of"] == "again")
            self.assertEqual(row["rounds"], 2, "times that mean nothing are not waited for")
            low, high = row["interval"]
            self.assertTrue(0 < low <= row["growth_ratio"] <= high, row)

    def test_shows_where_a_pools_time_goes(self):
        arguments = ["--bytes", "8M", "--page", "2M", "--rounds", "2", "--calls"]
        segment, again, pages = self.report("bench", "growth", *arguments, COMMPOOL_EMULATOR="devices=1")["rows"]
        for row in (segment, again, pages):
            for whose in ("pool", "raw"):
                self.assertLessEqual({"cuMemCreate", "cuMemMap", "cuMemSetAccess"}, set(row[whose + "_us_by_call"]))
            self.assertIn("pool_outside_us", row)
        self.assertIn("cuMemAddressReserve", segment["pool_us_by_call"])
        self.assertIn("cuMemAddressReserve", again["raw_us_by_call"])
        self.assertNotIn("cuMemAddressReserve", again["pool_us_by_call"])
        table = cli.run("bench", "growth", *arguments, COMMPOOL_EMULATOR="devices=1").stdout
        self.assertEqual(table.count("outside"), 3, table)

    def test_the_table_and_the_record_hold_the_same(self):
        record, result = self.record("bench", "growth", "--bytes", "8M", "--page", "2M", "--rounds", "1",
                                     COMMPOOL_EMULATOR="devices=1")
        self.assertEqual(len(record["results"]["rows"]), 3)
        self.assertEqual([line.split()[0] for line in result.stdout.splitlines() if not line.startswith("#")],
                         ["of", "segment", "again", "pages"])

    def test_bad_arguments_are_errors(self):
        self.each_ends(4, "bench growth", "--bytes much", "--page 1", "--rounds 0", "--bytes 1024G", "--seconds -1")


class Sleep(cli.CommandTest):
    _SMALL = ["--bytes", "64M", "--kept", "64M", "--blocks", "10", "--rounds", "2"]

    def test_shows_where_waking_what_was_kept_spends_its_time(self):
        report = self.report("bench", "sleep", *self._SMALL)
        self.assertEqual([row["what"] for row in report["rows"]],
                         ["raw driver calls", "pool", "copy, pinned", "copy, 4 streams", "copy, new memory",
                          "pool, kept", "pinning", "a call a block", "pool of blocks"])
        calls = report["kept_wake_us_in_calls"]
        for call in ("cuMemCreate", "cuMemSetAccess", "cuStreamSynchronize"):
            self.assertGreater(calls[call], 0)
        self.assertNotIn("cuMemAllocHost", calls)  # of falling asleep

    def test_the_table_ends_with_the_shares(self):
        result = self.ends(0, "bench", "sleep", *self._SMALL)
        self.assertRegex(result.stdout, r"# waking what was kept, milliseconds in .*cuStreamSynchronize [\d.]+")
        self.assertRegex(result.stdout.splitlines()[-1], r"kept at [\d.]+ \(down\) and [\d.]+ \(up\) of the copy's")
