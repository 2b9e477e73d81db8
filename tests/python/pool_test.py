"""Pools, buffers, scopes, statistics and errors, in C and by ctypes alone."""

import ctypes
import gc
import pickle
import sys
import unittest
import warnings
from unittest import mock

import emulated
import commpool
from commpool import errors
from emulated import MIB, Stream, at_once, elsewhere


_ALL_OF_THE_DEVICE = "141GiB"  # the emulator's default


class Pools(emulated.Case):
    def test_take_options_in_words_and_sizes_as_text(self):
        pool = commpool.Pool("worded", device="cuda:1", mode="expandable", moves="under_pressure", limit="64MiB",
                             alignment="1KiB", peers=[0])
        with pool.allocate("1.5MiB") as buffer:
            block = commpool.block_of(buffer)
            self.assertEqual((block.device, block.requested_bytes, buffer.pointer % 1024), (1, 3 * MIB // 2, 0))
        self.assertRaisesRegex(MemoryError, "its limit of 64 MiB", pool.allocate, "65MiB")
        self.assertEqual((pool.name, pool.device, pool.mode, pool.backing), ("worded", 1, "expandable", "vmm"))

    def test_reserve_serve_trim_and_close(self):
        with commpool.Pool(reserve="8MiB") as pool:
            self.assertEqual(pool.stats().reserved_bytes.current, 8 * MIB)
            pool.reserve(4 * MIB)
            buffer = pool.allocate(MIB)
            self.assertEqual(pool.stats().allocated_blocks, commpool.Counter(1, 1, 1))
            buffer.free()
            self.assertEqual(pool.trim(keep=0), 8 * MIB)
            pool.reset_peaks()
            self.assertEqual(pool.stats().reserved_bytes.peak, 0)
        self.assertRaises(commpool.NotFound, pool.stats)
        self.assertRegex(repr(pool), "destroyed>$")

    def test_a_reserve_that_fails_leaves_no_pool(self):
        self.assertRaisesRegex(commpool.OutOfMemory, "small", commpool.Pool, "small", limit="2MiB", reserve="4MiB")

    def test_a_pool_goes_with_its_last_name_and_its_buffers_stay(self):
        pool = commpool.Pool("short")
        buffer = pool.allocate(MIB)
        del pool
        gc.collect()
        self.assertEqual(commpool.block_of(buffer).pool, 0)
        buffer.free()
        self.assertEqual((buffer.pointer, commpool.block_of(0)), (0, None))

    def test_a_buffer_goes_with_its_last_name(self):
        pool = commpool.Pool()
        pool.allocate(MIB)
        gc.collect()
        self.assertEqual(pool.stats().allocated_blocks, commpool.Counter(0, 1, 1))

    def test_a_buffer_goes_without_a_line_that_could_be_interrupted(self):
        pool = commpool.Pool()
        buffer = pool.allocate(MIB)

        def interrupt(frame, event, argument):
            if event == "call":
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        del buffer
        sys.setprofile(None)
        self.assertEqual(pool.stats().allocated_blocks.current, 0)

    def test_a_buffer_is_there_once_its_block_is(self):
        """Ctrl-C may come at any step of an allocation: if it does, the block is freed."""
        pool, scoped = commpool.Pool(reserve="8MiB"), commpool.use_pool(commpool.Pool(reserve="8MiB"))
        for allocate in (lambda: pool.allocate(MIB), lambda: commpool.allocate(MIB, device=0),
                         lambda: commpool.allocate_in_scope(MIB, None, 0), lambda: commpool.empty(MIB, device=0)):
            with scoped:
                self.assertGreater(self.interrupted_at_each_step(allocate), 50)
            self.assertEqual(pool.stats().allocated_blocks.current, 0)
            self.assertEqual(scoped.pool.stats().allocated_blocks.current, 0)

    @staticmethod
    def interrupted_at_each_step(function):
        """Interrupts the function at each of its Python steps, one after another. Returns their number."""
        interrupted = 0
        while True:
            steps = iter(range(interrupted))

            def interrupt(frame, event, argument):
                frame.f_trace_opcodes = True
                if event == "opcode" and next(steps, None) is None:
                    raise KeyboardInterrupt
                return interrupt

            try:
                sys.settrace(interrupt)
                try:
                    function()
                finally:
                    sys.settrace(None)
                return interrupted
            except KeyboardInterrupt:
                interrupted += 1

    def test_a_buffer_begins_where_it_is_asked_to(self):
        pool = commpool.Pool()
        buffers = [pool.allocate(1000, alignment=4096) for _ in range(3)]
        self.assertTrue(all(buffer.pointer % 4096 == 0 and len(buffer) == 1000 for buffer in buffers))
        self.assertRaisesRegex(ValueError, "alignment 3 is no power of two", pool.allocate, 1000, alignment=3)

    def test_a_block_may_be_handed_over(self):
        pool = commpool.Pool()
        block = pool.allocate(MIB).release()
        gc.collect()
        self.assertEqual(commpool.block_of(block + 5).pointer, block)
        for wrong in ("text", b"bytes", 1.5, pool.allocate(MIB), -1, 2**64 + block):
            self.assertInvalid("^block .* is no", commpool.free, wrong)
        commpool.free(block)
        self.assertRaises(commpool.NotFound, commpool.free, block)

    def test_the_default_pool_is_the_librarys(self):
        pool = commpool.Pool.default(2)
        buffer = commpool.allocate(MIB, device=2)
        self.assertEqual(commpool.block_of(buffer).pool, pool.handle)
        for end in (pool.close, pool.destroy, pool.destroy):
            self.assertInvalid("the library's", end)
        self.assertEqual(commpool.Pool.default(2).stats().allocated_blocks.current, 1)

    def test_peers_are_granted_and_taken_back(self):
        pool = commpool.Pool(peers=1, reserve=MIB)
        pool.grant([2, "cuda:3"])
        self.assertEqual([pool.access_of(device) for device in (0, 1, "cuda:2", 3)], ["read-write"] * 4)
        pool.revoke(1)
        self.assertEqual([pool.access_of(device) for device in (1, 2, "cpu")], ["none", "read-write", "none"])
        self.assertEqual(commpool.Pool(backing="pinned").access_of("cpu"), "read-write")
        for none_such in (9, -1):
            self.assertInvalid(f"there is no device {none_such}", pool.access_of, none_such)
        self.assertInvalid("no CUDA device", pool.access_of, "npu:0")
        self.assertRaisesRegex(commpool.NotSupported, "there is no device 77", pool.grant, 77)

    def test_peers_may_be_granted_to_read_alone(self):
        pool = commpool.Pool(peers=[1], grants="read", reserve=MIB)
        pool.grant(2)
        self.assertEqual([pool.access_of(device) for device in (0, 1, 2, 3)], ["read-write", "read", "read", "none"])
        settings = {setting.key: setting.value for setting in pool.config()}
        self.assertEqual((settings["grants"], settings["access"]), ("read", "0 1:read 2:read"))
        self.assertEqual(commpool.Pool(peers=[1], grants="read_write").access_of(1), "read-write")
        with self.assertRaisesRegex(commpool.NotSupported, 'grants="read".*ncclMemAlloc grants every'):
            commpool.Pool(backing="nccl", grants="read")
        self.assertInvalid("'write' is none of read_write, read", commpool.Pool, grants="write")

    def test_functions_without_a_context_allocate_from_the_pool(self):
        pool, rest = commpool.Pool(device=1), [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        functions = pool.functions()
        self.assertEqual(functions, pool.functions())
        pointer = ctypes.CFUNCTYPE(ctypes.c_void_p, *rest)(functions.allocate)(512, 1, 0)
        self.assertEqual(commpool.block_of(pointer).pool, pool.handle)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, *rest)(functions.free)(pointer, 512, 1, 0)
        self.assertIsNone(commpool.block_of(pointer))

    def test_other_streams_use_a_block_until_they_are_done(self):
        pool, own, other = commpool.Pool(), Stream(), Stream()
        buffer = pool.allocate(2 * MIB, own)
        self.assertEqual(buffer.stream, own.handle)
        other.fill(buffer)
        commpool.record_stream(buffer, other)
        buffer.free()
        other.synchronize()
        commpool.release_stream(other)
        commpool.release_stream(own)
        self.assertEqual(pool.trim(), 8 * MIB)

    def test_a_released_stream_s_later_work_is_waited_for_where_it_is_recorded(self):
        pool, own, other = commpool.Pool(limit="8MiB"), Stream(), Stream()
        buffer = pool.allocate("8MiB", own)
        commpool.release_stream(own)
        own.fill(buffer)
        buffer.record_stream(own)
        buffer.free()
        other.fill(pool.allocate("8MiB", other))
        other.synchronize()
        self.assertEqual(emulated.reports(), (0, ""))

    def test_a_snapshot_lists_what_lies_where(self):
        pool = commpool.Pool(reserve="4MiB")
        buffer = pool.allocate(2 * MIB)
        snapshot = pool.snapshot()
        self.assertEqual([(block.state, block.bytes) for block in snapshot.blocks],
                         [("live", 2 * MIB), ("free", 2 * MIB)])
        self.assertEqual(snapshot.segments, (commpool.Segment(buffer.pointer, 4 * MIB, 0),))
        self.assertIn("<td style=\"text-align:right\">live</td>", snapshot._repr_html_())


class States(unittest.TestCase):
    def test_are_told_by_properties(self):
        pool = commpool.Pool("states", limit="64MiB", reserve="2MiB")
        self.assertEqual((pool.asleep, pool.closed, pool.symmetric, pool.limit), (False, False, False, 64 * MIB))
        pool.sleep()
        self.assertEqual((pool.asleep, pool.closed), (True, False))
        pool.wake()
        pool.close()
        self.assertEqual((pool.asleep, pool.closed), (False, True))
        self.assertRegex(repr(pool), "'states', device 0, vmm fixed: closed>$")
        pool.destroy()
        self.assertTrue(pool.closed)
        self.assertIsNone(commpool.Pool().limit)

    def test_of_a_closed_pool_tell_what_is_still_in_use(self):
        pool = commpool.Pool("kept", reserve="2MiB")
        buffer = pool.allocate(MIB)
        pool.close()
        self.assertRegex(repr(pool), "closed, 1 MiB still in use>$")
        buffer.free()

    def test_a_with_that_routed_nothing_says_once_how_to(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                with commpool.Pool("unused") as pool:
                    pass
            with commpool.Pool("used") as pool:
                pool.allocate(MIB).free()
        said = [str(warning.message) for warning in seen]
        self.assertEqual(len(said), 1, said)
        self.assertIn("with commpool.use_pool(pool):", said[0])
        self.assertTrue(pool.closed)

    def test_the_pools_of_the_process_are_listed(self):
        def listed():
            return [pool.name for pool in commpool.pools() if pool.name in ("one", "other")]

        one, other = commpool.Pool("one"), commpool.Pool("other")
        self.assertEqual(listed(), ["one", "other"])
        one.close()
        self.assertEqual(listed(), ["other"])
        del other
        gc.collect()
        self.assertEqual(listed(), [])

    def test_default_pools_are_listed_once_asked_for(self):
        kept = commpool.Pool.default(1)
        commpool.Pool.default(1)
        gc.collect()
        self.assertIn(kept, commpool.pools())

    def test_a_pool_contains_its_tensors(self):
        pool, other = commpool.Pool("one"), commpool.Pool("other")
        array = pool.empty((4, 4))
        self.assertIn(array, pool)
        self.assertNotIn(array, other)
        self.assertNotIn(0, pool)
        self.assertNotIn(None, pool)  # a gradient before the first backward

    def test_the_current_pool_is_that_of_the_scope_entered_last(self):
        one, other = commpool.Pool("one"), commpool.Pool("other")
        self.assertIsNone(commpool.current_pool())
        with commpool.use_pool(one):
            with commpool.use_pool(other, sizes=("1MiB", None)):
                self.assertIs(commpool.current_pool(), other)
            self.assertIs(commpool.current_pool(), one)
            self.assertIsNone(elsewhere(commpool.current_pool))
        self.assertIsNone(commpool.current_pool())


class Display(unittest.TestCase):
    def test_a_pool_shows_itself(self):
        pool = commpool.Pool("a <b>", reserve="4MiB")
        buffer = pool.allocate(1536)
        self.assertEqual(repr(pool), "<commpool.Pool 'a <b>', device 0, vmm fixed: 1.5 KiB in use of 4 MiB reserved>")
        self.assertRegex(repr(buffer), r"<commpool.Buffer 1.5 KiB at 0x[0-9a-f]+>")
        page = pool._repr_html_()
        self.assertIn("commpool.Pool &#x27;a &lt;b&gt;&#x27;", page)
        self.assertIn(">reserved bytes</td><td style=\"text-align:right\">4 MiB</td>", page)
        self.assertRegex(str(pool.stats()), r"reserved bytes +4 MiB +4 MiB +4 MiB\n")
        pool.destroy()
        self.assertNotIn("<table>", pool._repr_html_())


class Errors(emulated.Case):
    def test_each_kind_has_a_class_of_its_own_and_pythons(self):
        kinds = {"INVALID_ARGUMENT": ValueError, "OUT_OF_MEMORY": MemoryError, "EXHAUSTED": MemoryError,
                 "NOT_FOUND": LookupError, "DEADLINE_EXCEEDED": TimeoutError, "NOT_SUPPORTED": NotImplementedError}
        for code in set(commpool.StatusCode) - {commpool.StatusCode.OK, commpool.StatusCode.NOT_CAUGHT}:
            error = errors.failure(code, "why")
            self.assertEqual((error.code, error.message, str(error)), (code, "why", "why"))
            self.assertIsInstance(error, kinds.get(code.name, RuntimeError))
            self.assertIsInstance(error, commpool.CommpoolError)
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), copy.code, copy.message), (type(error), code, "why"))
        self.assertIs(type(errors.failure(99, "of a newer library")), commpool.CommpoolError)

    def test_say_a_destroyed_pool_s_name_and_python_s_words(self):
        pool = commpool.Pool("gone")
        pool.destroy()
        for call in (pool.stats, pool.reclaim, pool.lost_rank, lambda: pool.allocate(1)):
            self.assertRaisesRegex(commpool.NotFound, "^pool 'gone' was destroyed$", call)
        self.assertEqual(errors.in_python("say graphs = NO_COLLECTIVES or mode EXPANDABLE, and no NCCL"),
                         'say graphs="no_collectives" or mode="expandable", and no NCCL')

    def test_name_options_as_python_has_them(self):
        pool = commpool.Pool()
        for wrong, words in ((lambda: commpool.Pool(limit=0), "limit is 0"),
                             (lambda: commpool.Pool(segment="4MiB", limit="2MiB"), "segment 4 MiB is .* limit 2 MiB"),
                             (lambda: commpool.Pool(alignment=100), "alignment 100 is not a power of two"),
                             (lambda: commpool.Pool(granularity=3), "granularity 3 is neither"),
                             (lambda: pool.sleep(retain=True), 'keep="discard" keeps nothing')):
            self.assertInvalid(f"(^| ){words}", wrong)
        self.assertEqual(errors.in_python("replays ONE_AT_A_TIME excludes"), "concurrent_replays=False excludes")

    def test_of_free_memory_in_pieces_name_the_expandable_mode(self):
        pool = commpool.Pool("pieces", limit="32MiB", reserve="32MiB")
        buffers = [pool.allocate("1MiB") for _ in range(30)]
        for buffer in buffers[::2]:
            buffer.free()
        with self.assertRaisesRegex(commpool.OutOfMemory, 'smaller pieces: mode="expandable" moves them'):
            pool.allocate("8MiB")

    def test_of_an_explicit_none_or_0_name_symmetric_across(self):
        for given in (None, 0):
            told = f"symmetric_across is {given}, which is no communicator"
            self.assertInvalid(told, commpool.Pool, symmetric_across=given)

    def test_of_a_method_s_arguments_name_the_class_that_programs_know(self):
        pool = commpool.Pool()
        for wrong, words in ((lambda: pool.sleep(levels=1), r"^Pool\.sleep\(\) "),
                             (lambda: pool.share(blocks=1), r"^Pool\.share\(\) "),
                             (lambda: pool.stats(1), r"^Pool\.stats\(\) "),
                             (lambda: commpool.use_pool(pool, size=1), r"^use_pool\(\) got an unexpected keyword"),
                             (lambda: commpool.Pool("a", 0), r"^Pool\(\): too many positional arguments")):
            self.assertRaisesRegex(TypeError, words, wrong)

    def test_of_an_unknown_keyword_name_the_nearest_and_all(self):
        told = (r"^Pool\(\) got an unexpected keyword argument 'limit_bytes': the nearest is limit, and it takes "
                "device, symmetric_across, reserve, ")
        self.assertRaisesRegex(TypeError, told, commpool.Pool, limit_bytes=1)

    def test_name_the_call_and_the_likely_cause(self):
        for wrong, words in ((lambda: commpool.Pool(backing="mmap"), "backing 'mmap' is none of vmm, cuda, nccl, user"),
                             (lambda: commpool.Pool(backing="user"), "pass a commpool.UserBacking"),
                             (lambda: commpool.Pool(device="gpu"), "device 'gpu' is no CUDA device"),
                             (lambda: commpool.Pool(limit="1 parsec"), "limit '1 parsec' is no size"),
                             (lambda: commpool.Pool(limit=-1), "limit -1 is not between 0"),
                             (lambda: commpool.Pool(limit=2.5), "limit 2.5 is no integer"),
                             (lambda: commpool.Pool(device=77), "77"),
                             (lambda: commpool.Pool(None), "name None is no text"),
                             (lambda: commpool.Pool("a\0b"), "name 'a.x00b' is no text"),
                             (lambda: commpool.Pool("\udc80"), "name '.udc80' is no text"),
                             (lambda: commpool.Pool(tag=None), "tag None is no text"),
                             (lambda: commpool.Pool(mode=5), "mode 5 is none of fixed, expandable"),
                             (lambda: commpool.Pool(location=["device"]), r"location \['device'\] is none of"),
                             (lambda: commpool.Pool(all_gather=5), "all_gather 5 is no commpool.Agreement"),
                             (lambda: commpool.Agreement(None, 2), "all_gather None is no function"),
                             (lambda: commpool.Agreement(print, 2.5), "ranks 2.5 is no integer"),
                             (lambda: commpool.RankMissing("two"), "rank 'two' is no integer"),
                             (lambda: commpool.Pool(on_lost_rank=5), "on_lost_rank 5 is no function"),
                             (lambda: commpool.Pool(deadline_ms="5"), "deadline_ms '5' is no integer"),
                             (lambda: commpool.sleep(tag=None), "tag None is no text"),
                             (lambda: commpool.wake(tag=5), "tag 5 is no text"),
                             (lambda: commpool.MemoryHolder(None), "name None is no text"),
                             (lambda: commpool.MemoryHolder(cached_bytes=5), "5 is no function of a memory holder"),
                             (lambda: commpool.MemoryHolder(release="x"), "'x' is no function of a memory holder"),
                             (lambda: commpool.empty(4, pool=5), "empty takes a commpool.Pool, not 5"),
                             (lambda: commpool.capture(5, 0).__enter__(), "capture takes a commpool.Pool, not 5"),
                             (lambda: commpool.use_pool(commpool.Pool(), sizes=(1, 2, 3)), "sizes .* are not .least"),
                             (lambda: commpool.Pool(symmetric_across="world"), "'world' is no communicator"),
                             (lambda: commpool.record_stream("x", 0), "'x' is no pointer"),
                             (lambda: commpool.record_stream(-1, 0), "-1 is no pointer"),
                             (lambda: commpool.record_stream(0, 1.5), "1.5 is no stream"),
                             (lambda: commpool.use_pool(3), "use_pool takes a commpool.Pool, not 3"),
                             (lambda: commpool.initialize("fast"), "driver 'fast' is none of cuda, emulated, auto")):
            self.assertInvalid(words, wrong)

    def test_a_closed_pool_serves_nothing(self):
        pool = commpool.Pool("closed")
        pool.close()
        self.assertRaisesRegex(commpool.FailedPrecondition, "closed", pool.allocate, 512)


class Sizes(unittest.TestCase):
    def test_are_read_as_people_write_them(self):
        for text, count in (("512", 512), ("512 B", 512), ("64K", 64 << 10), ("1.5GiB", 3 << 29), ("2gb", 2 << 30),
                            (" 1 TiB ", 1 << 40), (4096, 4096)):
            self.assertEqual(commpool.parse_size(text), count, text)
        for text in ("", "GiB", "-1", "1..5M", "1XiB", True, None, 2**64, "20000000T"):
            with self.assertRaises(ValueError, msg=repr(text)):
                commpool.parse_size(text)


class Runtime(emulated.Case):
    def test_tells_what_it_runs_on(self):
        commpool.initialize("emulated")
        self.assertRegex(commpool.driver_description(), "emulated CUDA driver")
        self.assertRegex(commpool.library_version(), r"^\d+\.\d+\.\d+$")
        self.assertRaises(commpool.FailedPrecondition, commpool.initialize, "emulated", measure=True)

    def test_pools_share_a_budget(self):
        budget = commpool.Budget("8MiB", name="kv")
        pages = commpool.Pool("pages", device=3, budget=budget)
        scales = commpool.Pool("scales", device=3, budget="kv")
        held = pages.allocate("6MiB")
        with self.assertRaisesRegex(commpool.OutOfMemory, "the limit of budget kv of device 3, 8 MiB"):
            scales.allocate("4MiB")
        self.assertEqual(budget.use(3), commpool.BudgetUse(reserved=6 * MIB, peak=6 * MIB, limit=8 * MIB))
        self.assertEqual({setting.key: setting.value for setting in pages.config()}["budget"], "kv")
        budget.set_limit(None)
        self.assertIsNone(budget.use(3).limit)
        scales.allocate("4MiB").free()
        held.free()
        with self.assertRaisesRegex(commpool.NotFound, "there is no budget named none such: make it before the pool"):
            commpool.Pool("other", budget="none such")
        self.assertRaises(commpool.InvalidArgument, commpool.Budget, "8MiB", name="")

    def test_a_device_has_a_limit_and_other_holders(self):
        release = mock.create_autospec(lambda device, count: None, side_effect=ValueError("holders may raise"))
        pool = commpool.Pool("limited", device=3)
        unraisable = self.hear_unraisable()
        commpool.set_device_limit(3, "8MiB")
        self.assertRaisesRegex(commpool.OutOfMemory, "8 MiB", pool.allocate, "16MiB")
        commpool.set_device_limit(3, None)
        commpool.set_headroom("1TiB", 3)
        self.addCleanup(commpool.set_headroom, None, 3)
        with self.assertRaisesRegex(commpool.OutOfMemory, "would not leave the headroom of device 3, 1 TiB"):
            commpool.empty(MIB, device=3)
        commpool.set_headroom(None, 3)
        held = pool.allocate("16MiB")
        with commpool.MemoryHolder("framework", cached_bytes=lambda device: 5 * MIB, release=release) as holder:
            self.assertRaisesRegex(commpool.OutOfMemory, "framework", pool.allocate, _ALL_OF_THE_DEVICE)
        held.free()
        holder.remove()  # a second time does nothing
        self.assertEqual({call.args[0] for call in release.call_args_list}, {3})
        self.assertIsInstance(unraisable[0].exc_value, ValueError)

    def test_threads_wait_without_the_gil(self):
        pool = commpool.Pool("threads")
        at_once(lambda: [pool.allocate(512).free() for _ in range(200)], 4)
        self.assertEqual(pool.stats().allocated_blocks.current, 0)
