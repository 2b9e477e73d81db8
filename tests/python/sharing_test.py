"""A pool of one process, and its blocks, in another one."""

import contextlib

import emulated
import commpool
from emulated import MIB
from other_process import Other, OtherError


class Sharing(emulated.Case):
    def setUp(self):
        self.pool, self.stream, self.other = self.make_pool("shared"), emulated.Stream(), Other()
        self.addCleanup(lambda: self.assertEqual(self.other.end(), 0))

    def filled(self, value, size=MIB):
        block = self.pool.allocate(size, self.stream)
        self.stream.fill(block, value)
        self.stream.synchronize()
        return block

    def take(self, name, block, **options):
        """The other process has the block by a name."""
        ticket = self.pool.share(block, **options)
        self.other.does(f"shared = globals().get('shared') or commpool.Pool.import_({ticket!r})")
        self.other.does(f"{name} = shared.block({ticket!r})")

    def taken(self, value, **options):
        """A filled block, which the other process has as `block`."""
        block = self.filled(value)
        self.take("block", block, **options)
        return block

    def update(self, block):
        """The other process reads what an update writes."""
        with self.pool.update(block, self.stream):
            self.stream.fill(block, 4)
        self.assertEqual(self.other.says("values(block)"), [4, 4])

    def assertOtherRaises(self, reason, line):
        self.assertRaisesRegex(OtherError, reason, self.other.does, line)

    def await_reusable(self):
        """Waits until the owner has heard that nobody holds a block that it freed."""
        while any(block.state == "pending" for block in self.pool.snapshot().blocks):
            pass

    def sleep_once_nobody_imports(self):
        """The owner hears a little later that an import was closed."""
        while not self.pool.stats().asleep_bytes:
            with contextlib.suppress(commpool.FailedPrecondition):
                self.pool.sleep()
        self.pool.wake()


class Blocks(Sharing):
    def test_are_read_by_another_process_in_place(self):
        first, second = self.filled(3), self.filled(4)
        self.take("first", first)
        self.take("second", second)
        self.assertEqual(self.other.says("values(first), values(second)"), [[3, 3], [4, 4]])
        self.assertEqual(self.other.says("first.nbytes, first.device"), [MIB, 0])
        self.other.does("shared.close()")

    def test_are_blocks_of_any_ticket_that_imports_the_pool(self):
        block = self.filled(5)
        ticket = self.pool.share(block)
        self.other.does(f"shared = commpool.Pool.import_({ticket!r}, device=0, addresses='any', deadline_ms=5000)")
        self.assertEqual(self.other.says(f"values(shared.block({ticket!r}))"), [5, 5])

    def test_show_updates_that_lie_between_reads(self):
        block = self.taken(3)
        for value in range(10, 20):
            with self.pool.update(block, self.stream):
                self.stream.fill(block, value)
            self.assertEqual(self.other.says("values(block)"), [value, value])

    def test_take_updates_again_after_one_that_raised(self):
        block = self.taken(3)
        with self.assertRaises(KeyError), self.pool.update(block, self.stream):
            raise KeyError("of the program")
        self.update(block)

    def test_that_are_not_mutable_take_no_update(self):
        block = self.taken(6, mutable=False)
        with self.assertRaises(commpool.FailedPrecondition), self.pool.update(block, self.stream):
            pass
        self.assertEqual(self.other.says("values(block)"), [6, 6])

    def test_are_read_without_asking_where_the_program_knows_that_nobody_writes(self):
        block = self.taken(6)
        with self.pool.update(block, self.stream):  # a read that asked would wait for its end
            self.other.does(f"known = shared.block({self.pool.share(block)!r}, mutable=False)")
            self.assertEqual(self.other.says("values(known)"), [6, 6])

    def test_that_are_read_without_asking_serve_again_after_the_reads_on_any_stream(self):
        for current in (0, 1):  # device of the reading thread
            for work in ("with block.read(stream): before.begin(stream)",
                         "before.begin(stream); block.record_stream(stream)"):
                self.expect_pending_until_read(current, work)

    def expect_pending_until_read(self, current, work):
        block, *others = [self.filled(6) for _ in range(3)]
        ticket = self.pool.share(block, mutable=False)
        self.other.does(f"shared = commpool.Pool.import_({ticket!r}, device=0)")
        self.other.does("stream, before = emulated.Stream(), emulated.Hold()")
        self.addCleanup(self.other.does, "before.end()")
        self.other.does(f"emulated.make_current({current}); block = shared.block({ticket!r}, mutable=False)")
        self.other.does(work)
        self.other.does("block.free()")
        block.free()
        for other in others:  # with an answer about the second one the owner has heard all that came before the first
            self.other.does(f"other = shared.block({self.pool.share(other)!r})")
        self.assertIn("pending", [block.state for block in self.pool.snapshot().blocks], (current, work))
        self.other.does("before.end()")
        self.await_reusable()
        self.other.does("shared.close()")

    def test_that_are_read_without_asking_are_read_by_streams_that_capture(self):
        block = self.taken(6, mutable=False)
        self.other.does(f"known = shared.block({self.pool.share(block)!r}, mutable=False); stream = emulated.Stream()")
        self.other.does("stream.begin_capture()\nwith known.read(stream): stream.fill(known)")
        self.other.does("stream.end_capture()")

    def test_that_are_read_without_asking_are_read_beside_captures_of_their_own_stream_or_any(self):
        block = self.filled(6)
        ticket = self.pool.share(block, mutable=False)
        self.other.does("own, stream = emulated.Stream(), emulated.Stream()")
        self.other.does(f"block = commpool.Pool.import_({ticket!r}).block({ticket!r}, own, mutable=False)")
        self.other.does("own.begin_capture()")
        for reader in ("stream", "0"):  # while a stream captures the driver refuses questions about stream 0
            # And nothing else.
            self.assertOtherRaises("^KeyError: ", f"with block.read({reader}): raise KeyError('of the program')")
        self.other.does("own.end_capture()")

    def test_are_read_and_let_go_by_threads_without_a_current_context(self):
        self.taken(6)
        self.other.does("reading = block.read()\n"
                        "def read_and_free():\n  with reading: pass\n  block.free()\n"
                        "emulated.elsewhere(read_and_free)")

    def test_are_updated_by_threads_without_a_current_context(self):
        block = self.taken(6)
        update = self.pool.update(block)

        def update_nothing():
            with update:
                pass

        emulated.elsewhere(update_nothing)
        self.assertEqual(self.other.says("values(block)"), [6, 6])

    def test_wait_for_reads_that_are_open(self):
        pool = self.make_pool("impatient", deadline_ms=50)
        block = pool.allocate(MIB)
        ticket = pool.share(block)
        self.other.does(f"block = commpool.Pool.import_({ticket!r}).block({ticket!r}); reading = block.read()")
        self.other.does("reading.__enter__()")
        with self.assertRaises(commpool.DeadlineExceeded), pool.update(block):
            self.fail("the other reads")
        self.other.does("reading.__exit__(None, None, None)")
        with pool.update(block):
            pass

    def test_end_a_read_and_an_update_whose_stream_fails(self):
        block = self.taken(3)
        for call in ("cuStreamIsCapturing", "cuEventRecord"):  # before the begin, and at the end
            self.other.does(f"emulated.cuda().commpoolEmulatorInjectFault(b'{call}', 0, 1, 400)")
            self.assertOtherRaises(f"^DriverError: {call}", "with block.read(): pass")
            emulated.cuda().commpoolEmulatorInjectFault(call.encode(), 0, 1, 400)
            with self.assertRaisesRegex(commpool.DriverError, call), self.pool.update(block, self.stream):
                pass
        self.update(block)

    def test_are_read_on_no_default_stream_of_another_device(self):
        self.taken(3)
        self.other.does("class Default:\n  device_id = 1\n  def __cuda_stream__(self): return 0, 0")
        self.assertOtherRaises("^InvalidArgument: .*device 1", "block.read(Default())")

    def test_serve_again_once_the_other_lets_go(self):
        for letting_go in ("block.free()", "del block", "block.__exit__()", "shared.close()"):
            block = self.filled(7)
            place = block.pointer
            self.take("block", block)
            block.free()
            while_held = self.pool.allocate(MIB, self.stream)
            self.assertNotEqual(while_held.pointer, place, "the other has it")
            self.assertEqual(self.other.says("values(block)"), [7, 7])
            self.other.does(letting_go)
            self.await_reusable()
            while_held.free()
            blocks = [self.pool.allocate(MIB, self.stream) for _ in range(2)]
            self.assertIn(place, [block.pointer for block in blocks], letting_go)

    def test_that_the_driver_did_not_let_go_are_let_go_by_another_free(self):
        block = self.taken(7)
        block.free()
        for _ in range(2):
            self.other.does("emulated.cuda().commpoolEmulatorInjectFault(b'cuEventRecord', 0, 1, 400)")
            self.assertOtherRaises("^DriverError: cuEventRecord", "block.free()")
        self.assertIn("pending", [block.state for block in self.pool.snapshot().blocks])
        self.other.does("block.free()")
        self.await_reusable()

    def test_of_a_dead_process_serve_again(self):
        block = self.filled(7)
        place = block.pointer
        self.take("block", block)
        block.free()
        self.other.kill()
        self.other = Other()
        self.await_reusable()
        self.assertEqual(self.pool.allocate(MIB, self.stream).pointer, place)

    def test_outlive_their_owner(self):
        owner = Other()
        owner.does("pool = commpool.Pool('theirs'); block = pool.allocate(4096); stream = emulated.Stream()")
        owner.does("stream.fill(block, 9); stream.synchronize()")
        ticket = owner.says("pool.share(block)")
        self.other.does(f"block = commpool.Pool.import_({ticket!r}).block({ticket!r})")
        owner.kill()
        self.assertEqual(self.other.says("values(block)"), [9, 9])
        self.assertOtherRaises("^RemoteFailure: .*ended", f"commpool.Pool.import_({ticket!r})")


class Captures(Sharing):
    """A stream that captures takes no end of a read or an update, and no release."""

    def setUp(self):
        super().setUp()
        self.pool = self.make_pool("impatient", deadline_ms=1000)
        self.block = self.filled(3)
        ticket = self.pool.share(self.block)
        self.other.does(f"shared, stream = commpool.Pool.import_({ticket!r}), emulated.Stream()")
        self.other.does(f"block = shared.block({ticket!r}, stream)")

    @contextlib.contextmanager
    def captured_there(self):
        self.other.does("stream.begin_capture()")
        yield
        self.other.does("stream.end_capture()")

    def test_begin_no_read(self):
        with self.captured_there():
            self.assertOtherRaises("^FailedPrecondition: the stream captures: .*nothing has begun",
                                   "with block.read(): pass")
        self.update(self.block)

    def test_are_not_broken_by_the_record_of_another_stream(self):
        with self.captured_there():
            self.assertOtherRaises("^FailedPrecondition: .*would break the capture",
                                   "block.record_stream(emulated.Stream())")

    def test_leave_a_read_open_in_which_they_begin(self):
        self.assertOtherRaises("^FailedPrecondition: the stream captures: .*the next read or update",
                               "with block.read(): stream.begin_capture()")
        self.other.does("stream.end_capture()")
        self.assertRaises(commpool.DeadlineExceeded, self.update, self.block)
        self.other.does("with block.read(): pass")
        self.update(self.block)

    def test_do_not_keep_a_read_that_was_never_left(self):
        self.other.does("reading = block.read(); reading.__enter__(); del reading")
        self.update(self.block)

    def test_begin_no_update(self):
        self.stream.begin_capture()
        with self.assertRaisesRegex(commpool.FailedPrecondition, "captures: .*nothing has begun"):
            with self.pool.update(self.block, self.stream):
                self.fail("it began")
        self.stream.end_capture()
        self.update(self.block)

    def test_leave_an_update_open_in_which_they_begin(self):
        with self.assertRaisesRegex(commpool.FailedPrecondition, "captures: .*the next read or update"):
            with self.pool.update(self.block, self.stream):
                self.stream.begin_capture()
        self.stream.end_capture()
        self.update(self.block)

    def test_keep_a_block_until_it_is_freed_again(self):
        self.block.free()
        with self.captured_there():
            for _ in range(2):
                self.assertOtherRaises("^FailedPrecondition: the stream captures", "block.free()")
        self.other.does("block.free()")
        self.await_reusable()

    def test_keep_a_block_without_a_name_until_another_comes(self):
        self.block.free()
        with self.captured_there():
            self.other.does("del block")
        another = self.filled(5)
        self.other.does(f"other = shared.block({self.pool.share(another)!r})")
        self.await_reusable()


class Arrays(Sharing):
    def test_of_a_shared_block_keep_it(self):
        block = self.taken(1)
        self.other.does("array = block.array((256, 1024), 'float32'); del block")
        self.assertEqual(self.other.says("array.shape, array.dtype, array.__dlpack_device__(), values(array.buffer)"),
                         [[256, 1024], "float32", [2, 0], [1, 1]])
        self.assertEqual(self.other.says("array.__cuda_array_interface__['data'][0] == array.buffer.pointer"), True)

    def test_wait_for_their_consumers_before_the_block_serves_again(self):
        block = self.taken(1)
        self.other.does("stream = emulated.Stream()")
        self.other.does("capsule = block.array(1024).__dlpack__(stream=stream.handle); stream.fill(block, 2)")
        self.other.does("del capsule; block.record_stream(stream); block.free()")
        block.free()
        self.filled(3).free()

    def test_are_let_go_once_their_consumer_s_stream_has_ended(self):
        block = self.taken(1)
        self.other.does("stream = emulated.Stream(); capsule = block.array(1024).__dlpack__(stream=stream.handle)")
        self.other.does("with block.read(stream): stream.fill(block, 2)")
        self.other.does("stream.destroy()")
        self.other.does("del capsule; block.free()")  # a report of the dead stream would fail the other process
        block.free()
        self.filled(3).free()

    def test_are_no_larger_than_their_block(self):
        self.take("block", self.filled(1, 4096))
        self.assertOtherRaises("^InvalidArgument: .*has 4100 bytes, and <commpool.SharedBlock",
                               "block.array((1025,), 'float32')")


class Refusals(Sharing):
    def test_of_what_is_no_ticket(self):
        ticket = self.pool.share()
        for wrong in ("", "a ticket", ticket[:-1], ticket.replace("1", "2", 1), "\0"):
            with self.assertRaises((commpool.InvalidArgument, commpool.NotSupported), msg=wrong):
                commpool.Pool.import_(wrong)

    def test_in_the_owners_process(self):
        self.assertRaises(commpool.FailedPrecondition, commpool.Pool.import_, self.pool.share())

    def test_of_options(self):
        ticket = self.pool.share()
        self.assertInvalid("addresses 'mine' is none of any, same", commpool.Pool.import_, ticket, addresses="mine")
        self.assertOtherRaises("^InvalidArgument: .*no device 9", f"commpool.Pool.import_({ticket!r}, device=9)")
        self.assertInvalid("imports 'told' is none of refuse_sleep, sleep_too", self.pool.share, imports="told")

    def test_of_parts_and_of_other_pools_blocks(self):
        block = self.pool.allocate(MIB)
        self.assertInvalid("another pool", self.make_pool("another").share, block)
        self.assertInvalid("part of a block", self.pool.share, block.pointer + 512)
        self.assertRaises(commpool.NotFound, self.pool.share, 1 << 40)
        with self.assertRaises(commpool.NotFound), self.pool.update(block):
            pass

    def test_of_pools_whose_memory_moves(self):
        self.assertRaises(commpool.NotSupported, self.make_pool("moving", mode="expandable").share)

    def test_of_blocks_that_were_freed(self):
        block = self.pool.allocate(MIB)
        ticket = self.pool.share(block)
        block.free()
        self.other.does(f"shared = commpool.Pool.import_({ticket!r})")
        self.assertOtherRaises("^NotFound: ", f"shared.block({ticket!r})")

    def test_after_the_import_was_closed(self):
        self.taken(1)
        self.other.does("shared.close(); shared.close()")
        for line in ("values(block)", "shared.stats()"):
            self.assertOtherRaises("^NotFound: ", line)
        block = self.filled(1)
        ticket = self.pool.share(block, mutable=False)
        self.other.does(f"shared = commpool.Pool.import_({ticket!r}); block = shared.block({ticket!r}, mutable=False)")
        self.other.does("shared.close()")
        for line in ("values(block)", "block.array(16)"):
            self.assertOtherRaises("^NotFound: |^InvalidArgument: ", line)

    def test_to_free_as_a_block_of_this_process(self):
        self.taken(1)
        self.assertOtherRaises("^FailedPrecondition: .*free.. lets it go", "block.release()")


class Sleep(Sharing):
    def test_is_refused_while_others_import_the_pool(self):
        block = self.taken(8)
        self.assertRaises(commpool.FailedPrecondition, self.pool.sleep)
        self.other.does("shared.close()")
        self.sleep_once_nobody_imports()

    def test_of_both_comes_back_at_the_same_place(self):
        block = self.taken(8, imports="sleep_too")
        before = self.other.says("block.pointer")
        self.pool.sleep(keep="host")
        self.pool.wake()
        self.assertEqual(self.other.says("values(block), block.pointer"), [[8, 8], before])


class Imports(Sharing):
    def test_find_the_owners_addresses(self):
        block = self.taken(2)
        self.assertEqual(self.other.says(f"shared.address({block.pointer + 100}) - block.pointer"), 100)
        self.assertRegex(self.other.says("repr(shared)"), "^<commpool.SharedPool, device 0: 1 blocks held, 1 MiB>$")

    def test_are_of_the_pool_s_own_device_where_its_memory_is_of_none(self):
        self.pool = self.make_pool("on the host", device=1, location="host_numa")
        self.take("block", self.pool.allocate(MIB))
        self.assertEqual(self.other.says("block.device, block.array(1024).__dlpack_device__()"), [1, [2, 1]])

    def test_end_with_their_last_name(self):
        block = self.taken(2)
        self.other.does("del block, shared")
        self.sleep_once_nobody_imports()

    def test_that_end_while_the_device_is_busy_are_closed_later(self):
        block, kept = self.filled(2), self.filled(3)
        ticket = self.pool.share(block)
        self.other.does(f"shared = commpool.Pool.import_({ticket!r}, deadline_ms=50); block = shared.block({ticket!r})")
        self.other.does("stream, work = emulated.Stream(), emulated.Hold(); work.begin(stream)")
        self.other.does("del block, shared")
        self.other.does("work.end(); stream.synchronize()")
        self.take("kept", kept)
        self.other.does("shared.close()")
        self.sleep_once_nobody_imports()

    def test_that_end_in_a_capture_are_closed_as_the_next_read_begins(self):
        self.taken(2)
        another = self.make_pool("another")
        kept = another.allocate(MIB)
        ticket = another.share(kept)
        self.other.does(f"kept = commpool.Pool.import_({ticket!r}).block({ticket!r})")
        self.other.does("local, stream = commpool.Pool('local'), emulated.Stream(); stream.begin_capture()")
        self.other.does("with commpool.capture(local, stream): del block, shared")
        self.assertOtherRaises("nothing has begun", "with kept.read(stream): pass")
        self.other.does("stream.end_capture()")  # it would fail if the import had been closed before
        self.other.does("with kept.read(): pass")
        self.sleep_once_nobody_imports()
