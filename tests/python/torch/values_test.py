"""Values of programs work, or the error names them."""

import pickle
from unittest import mock

import numpy
import torch

from routed import MIB, MakeInBackward, RoutedCase, commpool, on_threads, tensor, tensor_in

from commpool.torch import _group


def agreement(name, store, rank, ranks, deadline=5000):
    group = mock.Mock(group_name=name, **{"rank.return_value": rank, "size.return_value": ranks})
    with mock.patch.object(_group.distributed_c10d, "_get_process_group_store", lambda _: store):
        return _group.store_agreement(group, deadline)


class Devices(RoutedCase):
    def test_without_a_number_are_torchs_current_one(self):
        number = self.needs_device(1)
        with torch.cuda.device(number):
            for device in ("cuda", torch.device("cuda"), None):
                pool = self.pool(device=device)
                self.assertEqual(pool.device, number)
                with commpool.use_pool(pool, device="cuda"):
                    self.assert_in(pool, tensor(MIB, number))
                self.assertEqual(commpool.empty(4, device=device).device, number)
        self.assertEqual(self.pool(device="cuda").device, 0)

    def test_that_are_not_cudas_are_refused(self):
        for device in ("cpu", "meta", torch.device("cpu"), torch.device("meta")):
            with self.assertRaisesRegex(commpool.InvalidArgument, "device .* is no CUDA device"):
                commpool.Pool(device=device)


class Errors(RoutedCase):
    def test_of_asleep_and_closed_pools_are_commpools_own(self):
        pool = self.pool("state", reserve="8MiB")
        for end, why in ((pool.sleep, "asleep: wake"), (lambda: (pool.wake(), pool.close()), "closed")):
            end()
            with self.assertRaisesRegex(commpool.FailedPrecondition, f"^commpool: pool state .*{why}") as raised:
                tensor_in(pool)
            self.assertEqual(raised.exception.code, commpool.StatusCode.FAILED_PRECONDITION)
            self.assertIsInstance(raised.exception, RuntimeError)
            self.assertIn(why, raised.exception.message)
        pool.destroy()
        with self.assertRaisesRegex(RuntimeError, "^commpool: "), commpool.use_pool(pool):
            tensor(MIB)

    def test_of_backward_are_commpools_own(self):
        pool = self.pool("asleep", reserve="8MiB")
        x = torch.empty(4, device="cuda", requires_grad=True)
        y, gradient = MakeInBackward.apply(x, []), torch.empty(4, device="cuda")
        pool.sleep()
        with self.assertRaisesRegex(commpool.FailedPrecondition, "asleep"), commpool.use_pool(pool):
            y.backward(gradient)

    def test_of_memory_that_is_not_there_are_torchs_too(self):
        pool = self.pool("waking", reserve="8MiB")
        kept = tensor_in(pool, 4 * MIB)
        pool.sleep(keep="host")
        commpool.set_device_limit(0, "1MiB")
        self.addCleanup(commpool.set_device_limit, 0, None)
        for call in (pool.wake, lambda: self.pool("other").allocate("2MiB"), lambda: self.pool("new", reserve="2MiB")):
            with self.assertRaises(commpool.OutOfMemory) as raised:
                call()
            self.assertIsInstance(raised.exception, torch.OutOfMemoryError)
            self.assertIsInstance(raised.exception, MemoryError)
            self.assertIn("limit", raised.exception.message)
        copy = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((type(copy), copy.message), (type(raised.exception), raised.exception.message))
        commpool.set_device_limit(0, None)
        pool.wake()
        del kept


class Options(RoutedCase):
    def test_that_are_no_words_are_refused(self):
        pool = self.pool()
        for word in ("procces", ["process"]):
            with self.assertRaisesRegex(commpool.InvalidArgument, "filter .* is none of thread, stream, process"):
                commpool.use_pool(pool, filter=word)

    def test_that_are_no_pools_are_named(self):
        net = torch.nn.Linear(4, 4)
        for wrong, taker in ((lambda: commpool.install(default="x"), "install"),
                             (lambda: commpool.install(5), "install"), (lambda: commpool.install([None]), "install"),
                             (lambda: commpool.mem_pool(5), "mem_pool"),
                             (lambda: commpool.ddp(net, None), "ddp"), (lambda: commpool.fsdp(net, None), "fsdp"),
                             (lambda: commpool.tp(None), "tp"), (lambda: commpool.empty(4, pool=5), "empty")):
            with self.assertRaisesRegex(commpool.InvalidArgument, f"^{taker} takes a commpool.Pool, not "):
                wrong()

    def test_of_ddp_are_refused_before_any_rank_waits(self):
        pool, net = self.pool(), torch.nn.Linear(4, 4)
        pool.mode = "symmetric"  # like a pool over a group
        for words, why in (({"blocks": -1}, "blocks -1 is not between"), ({"blocks": 2**31}, "blocks 2147483648 is"),
                           ({"blocks": "4"}, "blocks '4' is no integer"), ({"bucket": "x"}, "bucket 'x' is no size")):
            with self.assertRaisesRegex(commpool.InvalidArgument, why):
                commpool.ddp(net, pool, **words)

    def test_of_deadlines_are_the_pools_own_where_there_is_none(self):
        store = torch.distributed.HashStore()
        for deadline in (None, 5000, numpy.int64(5000), "5"):
            with self.subTest(deadline):
                said = agreement("deadlines", store, 0, 1, deadline).all_gather(b"x")
                self.assertEqual([bytes(part) for part in said], [b"x"])

    def test_that_a_process_agreed_on_before_do_not_part_it_from_a_new_one(self):
        agreement("again", torch.distributed.HashStore(), 0, 1)
        store = torch.distributed.HashStore()
        older, newer = (agreement("again", store, rank, 2) for rank in range(2))
        said = on_threads(lambda: older.all_gather(b"a"), lambda: newer.all_gather(b"b"))
        self.assertEqual([[bytes(part) for part in of_rank] for of_rank in said], [[b"a", b"b"]] * 2)
