"""What scopes do. Two tests run these cases: one with the module in C, one by ctypes alone."""

import asyncio
import gc

import emulated
import commpool
from emulated import MIB, Stream, at_once, elsewhere


def pool_of(pointer):
    return commpool.block_of(pointer).pool


class ScopeCase(emulated.Case):
    def setUp(self):
        self.pool, self.other = commpool.Pool("scoped", reserve="8MiB"), commpool.Pool("other", reserve="8MiB")

    def assertServes(self, pool, size=MIB, stream=None):
        buffer = commpool.allocate(size, stream, device=0)
        self.assertEqual(pool_of(buffer), pool.handle)

    def assertLeftWrongly(self, leave, reason):
        self.assertRaisesRegex(commpool.FailedPrecondition, f"'scoped'.*{reason}.*await nothing", leave)


class Scopes(ScopeCase):
    def test_route_what_the_thread_allocates(self):
        with commpool.use_pool(self.pool) as entered:
            self.assertIs(entered, self.pool)
            self.assertServes(self.pool)
            elsewhere(lambda: self.assertServes(commpool.Pool.default(0)))
            with commpool.use_pool(self.other, device=0):
                self.assertServes(self.other)
            self.assertServes(self.pool)
        self.assertServes(commpool.Pool.default(0))

    def test_end_with_an_exception_that_leaves_them(self):
        with self.assertRaises(KeyError), commpool.use_pool(self.pool):
            raise KeyError("left")
        self.assertServes(commpool.Pool.default(0))

    def test_catch_sizes(self):
        for sizes, caught in ((("1MiB", None), (MIB, 2 * MIB)), ((None, "1MiB"), (512, MIB)), ("1MiB", (MIB,))):
            with commpool.use_pool(self.pool, sizes=sizes):
                for size in (512, MIB, 2 * MIB):
                    expected = self.pool if size in caught or (sizes == "1MiB" and size > MIB) else None
                    self.assertServes(expected or commpool.Pool.default(0), size)

    def test_hand_on_what_the_pool_cannot_serve(self):
        small = commpool.Pool("small", limit="2MiB")
        with commpool.use_pool(small), self.assertRaises(commpool.OutOfMemory):
            commpool.allocate(4 * MIB, device=0)
        with commpool.use_pool(self.other), commpool.use_pool(small, exhaustion="next_scope"):
            self.assertServes(self.other, 4 * MIB)

    def test_catch_one_stream_from_any_thread(self):
        stream = Stream()
        with commpool.use_pool(self.pool, stream=stream):
            self.assertServes(commpool.Pool.default(0))
            elsewhere(lambda: self.assertServes(self.pool, stream=stream))

    def test_catch_the_whole_process(self):
        with commpool.use_pool(self.pool, filter="process"):
            elsewhere(lambda: self.assertServes(self.pool))

    def test_tell_a_router_what_they_do_not_catch(self):
        self.assertIsNone(commpool.allocate_in_scope(MIB, None, 0))
        with commpool.use_pool(self.pool):
            self.assertEqual(pool_of(commpool.allocate_in_scope(MIB, None, 0)), self.pool.handle)
            self.assertIsNone(commpool.allocate_in_scope(MIB, None, 1))

    def test_refuse_what_excludes_itself(self):
        for words, reason in (({"device": 1}, "pool scoped serves device 0, not 1"),
                              ({"stream": 0, "filter": "process"}, "excludes stream="),
                              ({"filter": "stream"}, "needs stream="), ({"filter": "all"}, "thread, stream, process"),
                              ({"sizes": ("2MiB", 1)}, "least size, 2097152 bytes, is above"),
                              ({"exhaustion": "wait"}, "error, next_scope")):
            with self.assertRaisesRegex(commpool.InvalidArgument, reason), commpool.use_pool(self.pool, **words):
                self.fail("it began")
        self.assertRaises(TypeError, commpool.use_pool, self.pool, colour=1)
        self.assertRaises(TypeError, commpool.use_pool, self.pool, pool=self.pool)
        self.assertRaises(commpool.InvalidArgument, commpool.use_pool, "pool")

    def test_take_their_pool_by_its_keyword(self):
        for words, size in (({}, 512), ({"sizes": "1MiB"}, MIB)):
            with commpool.use_pool(pool=self.pool, **words):
                self.assertServes(self.pool, size)

    def test_one_object_is_one_scope_at_a_time(self):
        scope = commpool.use_pool(self.pool)
        for _ in range(2):
            with scope, self.assertRaisesRegex(commpool.FailedPrecondition, "open already"):
                scope.__enter__()
        self.assertRaises(commpool.NotFound, scope.__exit__, None, None, None)

    def test_that_another_thread_leaves_end_and_say_so(self):
        scope = commpool.use_pool(self.pool)
        scope.__enter__()
        self.assertServes(self.pool)
        elsewhere(lambda: self.assertLeftWrongly(lambda: scope.__exit__(None, None, None), "on another thread"))
        self.assertServes(commpool.Pool.default(0))
        with scope:
            self.assertServes(self.pool)

    def test_that_are_left_out_of_order_end_and_say_so(self):
        outer, inner = commpool.use_pool(self.pool), commpool.use_pool(self.other)
        outer.__enter__()
        inner.__enter__()
        self.assertLeftWrongly(lambda: outer.__exit__(None, None, None), "ended before")
        self.assertServes(self.other)
        inner.__exit__(None, None, None)
        self.assertServes(commpool.Pool.default(0))

    def test_of_a_generator_that_another_thread_closes_end_and_say_so(self):
        def generator():
            with commpool.use_pool(self.pool):
                yield

        open_one = generator()
        next(open_one)
        elsewhere(lambda: self.assertLeftWrongly(open_one.close, "on another thread"))
        self.assertServes(commpool.Pool.default(0))

    def test_that_are_dropped_end(self):
        scope = commpool.use_pool(self.pool)
        scope.__enter__()
        del scope
        gc.collect()
        self.assertServes(commpool.Pool.default(0))

    def test_of_a_pool_that_is_gone_cannot_begin(self):
        scope = commpool.use_pool(self.pool)
        self.pool.destroy()
        self.assertRaises(commpool.NotFound, scope.__enter__)


class Tasks(ScopeCase):
    """The tasks of a thread share its scopes."""

    def test_that_await_in_scopes_are_told(self):
        async def wait_in(pool, entered, leave):
            with commpool.use_pool(pool):
                entered.set()
                await leave.wait()

        async def two():
            entered, left = [asyncio.Event() for _ in range(2)], [asyncio.Event() for _ in range(2)]
            tasks = [asyncio.ensure_future(wait_in(self.pool, entered[0], left[0]))]
            await entered[0].wait()
            tasks.append(asyncio.ensure_future(wait_in(self.other, entered[1], left[1])))
            await entered[1].wait()
            left[0].set()
            first = (await asyncio.gather(tasks[0], return_exceptions=True))[0]
            self.assertServes(self.other)
            left[1].set()
            await tasks[1]
            return first

        def both():
            raise asyncio.run(two())

        self.assertLeftWrongly(both, "ended before")
        self.assertServes(commpool.Pool.default(0))

    def test_that_leave_the_scope_of_another_are_told(self):
        async def enter(scope):
            scope.__enter__()

        async def leave(scope):
            scope.__exit__(None, None, None)

        async def both():
            scope = commpool.use_pool(self.pool)
            await asyncio.ensure_future(enter(scope))
            await asyncio.ensure_future(leave(scope))

        self.assertLeftWrongly(lambda: asyncio.run(both()), "by another asyncio task")
        self.assertServes(commpool.Pool.default(0))

    def test_that_open_and_leave_scopes_between_awaits_are_served(self):
        async def one(pool):
            for _ in range(3):
                with commpool.use_pool(pool):
                    self.assertServes(pool)
                await asyncio.sleep(0)

        async def several():
            await asyncio.gather(one(self.pool), one(self.other))

        with commpool.use_pool(self.other):
            asyncio.run(several())
        self.assertServes(commpool.Pool.default(0))


class Decorators(emulated.Case):
    def test_open_a_scope_for_each_call(self):
        pool = commpool.Pool("decorated", reserve="8MiB")

        @commpool.use_pool(pool, sizes=("1MiB", None))
        def made(depth: int):
            """Allocates."""
            return [pool_of(commpool.allocate(size, device=0)) == pool.handle for size in (MIB, 512)
                    ] if depth == 0 else made(depth - 1)

        self.assertEqual((made(2), made.__doc__), ([True, False], "Allocates."))
        self.assertEqual(at_once(lambda: made(1), 3), [[True, False]] * 3)

    def test_refuse_what_runs_after_its_call(self):
        def generator():
            yield 1

        async def coroutine():
            pass

        for function in (generator, coroutine):
            self.assertInvalid("open the scope inside", commpool.use_pool(commpool.Pool()), function)


class Streams(emulated.Case):
    def test_are_recorded_by_whatever_tells_its_address(self):
        stream = Stream()
        array = commpool.empty(1024, device=0)
        for pointer in (array, array.buffer, array.pointer):
            commpool.record_stream(pointer=pointer, stream=stream)
            commpool.record_stream(pointer, stream.handle)
        self.assertRaises(commpool.NotFound, commpool.record_stream, 64, stream)
        commpool.release_stream(stream)

    def test_of_another_protocol_are_refused(self):
        class Newer:
            def __cuda_stream__(self):
                return 1, 5

        self.assertInvalid("version 1", commpool.allocate, 512, Newer(), device=0)


class Captures(emulated.Case):
    def test_are_served_from_what_is_reserved_and_nothing_breaks_them(self):
        stream, pool = Stream(), commpool.Pool("captured", reserve="8MiB")
        stream.begin_capture()
        with commpool.capture(pool, stream) as captured, commpool.use_pool(pool):
            self.assertIs(captured, pool)
            buffer = commpool.allocate("1MiB", stream)
            stream.fill(buffer)
        self.assertTrue(stream.is_captured())
        stream.end_capture()
        buffer.free()

    def test_that_did_not_begin_are_refused(self):
        with self.assertRaises(commpool.FailedPrecondition), commpool.capture(commpool.Pool(), Stream()):
            self.fail("it began")
