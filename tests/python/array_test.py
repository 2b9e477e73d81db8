"""Arrays as other libraries take them: __cuda_array_interface__ and DLPack, field by field."""

import ctypes
import gc
import time
import types
import unittest

import emulated
import commpool
from commpool import _dlpack
from emulated import MIB, Stream, elsewhere

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def take(capsule):
    """Acts as a consumer: takes the struct, renames the capsule, and at the end passes the struct to its deleter."""
    name = _name(capsule)
    kind = _dlpack.DLManagedTensorVersioned if b"versioned" in name else _dlpack.DLManagedTensor
    managed = kind.from_address(_pointer(capsule, name))
    _rename(capsule, _USED[name])
    return managed


class Interface(unittest.TestCase):
    def test_tells_shape_type_and_stream(self):
        stream = Stream()
        array = commpool.empty((3, 5), "complex64", stream=stream)
        self.assertEqual(array.__cuda_array_interface__, {
            "shape": (3, 5), "typestr": "<c8", "data": (array.pointer, False), "strides": None,
            "stream": stream.handle, "version": 3})
        self.assertEqual(commpool.empty(7, device=0).__cuda_array_interface__["stream"], 1)

    def test_has_no_types_that_numpy_has_not(self):
        self.assertFalse(hasattr(commpool.empty(7, "bfloat16", device=0), "__cuda_array_interface__"))


class Arrays(emulated.Case):
    def test_come_from_the_scope_or_from_a_pool(self):
        pool = commpool.Pool(device=1)
        with commpool.use_pool(pool):
            scoped = commpool.empty((2, 3), device=1)
        named = commpool.empty(4, pool=pool)
        for array in (scoped, named):
            self.assertEqual((commpool.block_of(array).pool, array.device), (pool.handle, 1))
        self.assertEqual(repr(scoped), "<commpool.Array 2x3 float32, device 1>")
        self.assertInvalid("is of device 1, not 0", commpool.empty, 4, pool=pool, device=0)

    def test_without_a_context_come_from_the_first_device_and_its_scopes(self):
        pool = commpool.Pool(device=0)

        def on_a_thread_without_one():
            with commpool.use_pool(pool):
                scoped = commpool.empty(4)
            return scoped, commpool.empty(4)

        made = elsewhere(on_a_thread_without_one)
        scoped, plain = map(commpool.block_of, made)
        self.assertEqual((scoped.pool, scoped.device, plain.device), (pool.handle, 0, 0))
        self.assertNotEqual(plain.pool, pool.handle)

    def test_keep_their_stream_s_object(self):
        class Ending(Stream):
            __del__ = Stream.destroy

        consumer, array = Stream(), commpool.Pool(device=0).empty(MIB, "uint8", stream=Ending())
        gc.collect()
        array.__dlpack__(stream=consumer.handle)  # a dead stream ends the process on hardware
        self.assertEqual(emulated.reports(), (0, ""))

    def test_of_a_thread_s_own_stream_are_whole_in_other_threads(self):
        emulated.make_current(0)
        array, done = commpool.Pool(device=0).empty(MIB, "uint8", stream=2), []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: done.append(time.sleep(0.05)))
        emulated.check(emulated.cuda().cuLaunchHostFunc(ctypes.c_void_p(2), function, None))

        def takes():
            emulated.make_current(0)
            array.__dlpack__(stream=2)
            done.append("taken")

        elsewhere(takes)
        self.assertEqual(done, [None, "taken"])

    def test_take_types_of_others(self):
        class Type(types.SimpleNamespace):
            def __str__(self):
                return "torch.float16"

        for dtype, bytes_of_one in (("int8", 1), (Type(), 2), (Type(name="float64"), 8), (type("int16", (), {}), 2),
                                    ("float8_e4m3fn", 1), ("bool", 1)):
            self.assertEqual(commpool.empty(3, dtype, device=0).nbytes, 3 * bytes_of_one)
        self.assertInvalid("dtype 'float31' is none of", commpool.empty, 3, "float31", device=0)
        self.assertInvalid("in this machine's byte order", commpool.empty, 3, Type(name="float32", isnative=False))

    def test_without_elements_take_no_memory(self):
        pool = commpool.Pool("empty", device=1)
        for array, shape in ((commpool.empty(0, device=1), (0,)), (commpool.empty((0, 5), pool=pool), (0, 5)),
                             (pool.empty((3, 0), "int8"), (3, 0))):
            self.assertEqual((array.shape, array.nbytes, array.pointer, array.device), (shape, 0, 0, 1))
            self.assertEqual(array.__cuda_array_interface__["shape"], shape)
            self.assertEqual(take(array.__dlpack__()).dl_tensor.ndim, len(shape))
        self.assertEqual(pool.stats().allocated_blocks.total, 0)
        self.assertEqual(commpool.empty((), device=0).nbytes, 4)
        self.assertInvalid("there is no device 9", commpool.empty, 0, device=9)

    def test_are_no_arrays_of_numpy_s(self):
        array, told = commpool.empty(4, device=0), "Array 4 float32, device 0> is memory that a device works on"
        self.assertRaisesRegex(TypeError, told, array.__array__)

    def test_have_shapes_of_numbers_from_0_on(self):
        self.assertInvalid("shape -1", commpool.empty, (2, -1), device=0)


class DLPack(emulated.Case):
    def test_tells_what_it_is(self):
        array = commpool.empty((2, 3, 4), "bfloat16", device=2)
        self.assertEqual(array.__dlpack_device__(), (2, 2))
        for version, name in ((None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"),
                              ((1, 3), b"dltensor_versioned"), ((2, 0), b"dltensor_versioned")):
            capsule = array.__dlpack__(max_version=version)
            self.assertEqual(_name(capsule), name)
            managed = take(capsule)
            tensor = managed.dl_tensor
            self.assertEqual((tensor.data, tensor.device.device_type, tensor.device.device_id, tensor.ndim),
                             (array.pointer, 2, 2, 3))
            self.assertEqual((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), (4, 16, 1))
            self.assertEqual((tensor.shape[:3], tensor.strides[:3], tensor.byte_offset), ([2, 3, 4], [12, 4, 1], 0))
            if b"versioned" in name:
                self.assertEqual((managed.major, managed.minor, managed.flags), (1, 0, 0))
            managed.deleter(ctypes.addressof(managed))

    def test_lays_structs_out_as_dlpack_does(self):
        sizes = [ctypes.sizeof(kind) for kind in (_dlpack.DLTensor, _dlpack.DLManagedTensor,
                                                  _dlpack.DLManagedTensorVersioned)]
        self.assertEqual(sizes, [48, 64, 80])
        self.assertEqual(_dlpack.DLManagedTensorVersioned.dl_tensor.offset, 32)

    def test_keeps_the_memory_until_the_consumer_lets_go(self):
        array = commpool.empty(MIB, "uint8", device=0)
        pointer, capsule = array.pointer, array.__dlpack__()
        managed = take(capsule)
        del array, capsule
        gc.collect()
        self.assertIsNotNone(commpool.block_of(pointer))
        managed.deleter(ctypes.addressof(managed))
        gc.collect()
        self.assertIsNone(commpool.block_of(pointer))

    def test_that_nobody_takes_lets_go(self):
        pool = commpool.Pool()
        for version in (None, (1, 0)):
            commpool.empty(MIB, "uint8", pool=pool).__dlpack__(max_version=version)
            gc.collect()
            self.assertEqual(pool.stats().allocated_blocks.current, 0)

    def test_that_a_consumer_refuses_lets_go_and_leaves_the_consumers_error(self):
        pool = commpool.Pool()
        for version in (None, (1, 0)):
            with self.assertRaises(ZeroDivisionError) as raised:
                (commpool.empty(MIB, "uint8", pool=pool).__dlpack__(max_version=version), 1 // 0)
            self.assertIsNone(raised.exception.__cause__)
            self.assertEqual(pool.stats().allocated_blocks.current, 0)

    def test_orders_the_consumers_stream_behind_the_arrays(self):
        own, consumer = Stream(), Stream()
        array = commpool.empty(MIB, "uint8", stream=own)
        own.fill(array)
        managed = take(array.__dlpack__(stream=consumer.handle))
        consumer.fill(array, 9)  # the emulator reports a race if the fill is not ordered
        managed.deleter(ctypes.addressof(managed))
        array.buffer.free()
        again = commpool.empty(MIB, "uint8", stream=own)
        own.fill(again)  # and here, if the block did not wait for the consumer
        for stream in (own, consumer):
            stream.synchronize()
        self.assertEqual(emulated.reports(), (0, ""))

    def reuse(self, pool, make, own, consumer, end=lambda: None):
        """The consumer of an array works on it and lets go; then its memory serves again."""
        emulated.make_current(0)
        array = make()
        managed = take(array.__dlpack__(stream=consumer.handle))
        emulated.make_current(pool.device)
        consumer.fill(array)
        emulated.make_current(0)
        del array
        end()
        managed.deleter(ctypes.addressof(managed))
        again = pool.allocate("2MiB", own)
        own.fill(again)  # the emulator reports a race if the block did not wait for the consumer
        own.synchronize()
        self.assertEqual(emulated.reports(), (0, ""))

    def test_waits_for_a_consumer_whose_stream_has_ended(self):
        pool, own, consumer = commpool.Pool(limit="2MiB"), Stream(), Stream()
        commpool.promise_stream(own)
        self.reuse(pool, lambda: pool.empty(MIB, "uint8", stream=own), own, consumer, consumer.destroy)

    def test_waits_for_the_consumer_of_a_buffer_that_begins_within_its_block(self):
        pool, own, consumer = commpool.Pool(limit="2MiB"), Stream(), Stream()

        def make():
            shift = pool.allocate(512, own)
            buffer = pool.allocate(4096, own, alignment=4096)
            self.assertNotEqual(buffer.pointer, commpool.block_of(buffer).pointer)
            shift.free()
            return commpool.arrays.of_buffer(buffer, 4096, "uint8", 0)

        self.reuse(pool, make, own, consumer)

    def test_waits_for_a_consumer_on_the_default_stream_of_its_device(self):
        pool, own, consumer = commpool.Pool(device=1, limit="2MiB"), Stream(1), Stream(1)
        consumer.handle = 1
        self.reuse(pool, lambda: pool.empty(MIB, "uint8", stream=own), own, consumer)

    def test_is_refused_for_a_buffer_that_was_freed(self):
        array = commpool.empty(4, device=0, stream=Stream())
        array.buffer.free()
        for take_it in (array.__dlpack__, lambda: array.__cuda_array_interface__):
            self.assertRaisesRegex(commpool.FailedPrecondition, "its buffer was freed", take_it)

    def test_is_refused_where_one_stream_captures_and_breaks_no_capture(self):
        stream, other, blocking = Stream(), Stream(), Stream(flags=0)
        for captured, own, consumer in ((stream, other, stream.handle), (stream, None, stream.handle),
                                        (stream, stream, other.handle), (blocking, None, blocking.handle),
                                        (blocking, other, None)):
            array = commpool.empty(4, device=0, stream=own)
            captured.begin_capture()
            with self.assertRaisesRegex(commpool.FailedPrecondition, "would break the capture"):
                array.__dlpack__(stream=consumer)
            self.assertFalse(other.is_captured())
            captured.end_capture()  # it fails where the capture is broken

    def test_orders_streams_of_one_capture(self):
        own, consumer, event, cuda = Stream(), Stream(), ctypes.c_void_p(), emulated.cuda()
        array = commpool.empty(4, stream=own)
        emulated.check(cuda.cuEventCreate(ctypes.byref(event), 2))
        consumer.begin_capture()
        emulated.check(cuda.cuEventRecord(event, ctypes.c_void_p(consumer.handle)))
        emulated.check(cuda.cuStreamWaitEvent(ctypes.c_void_p(own.handle), event, 0))
        array.__dlpack__(stream=consumer.handle)
        consumer.end_capture()  # it fails where `own` has not joined

    def test_refuses_what_it_cannot_do(self):
        array = commpool.empty(4, device=0)
        for words in ({"copy": True}, {"dl_device": (1, 0)}, {"dl_device": (2, 1)}):
            self.assertRaises(BufferError, array.__dlpack__, **words)
        self.assertInvalid("ambiguous", array.__dlpack__, stream=0)
        take(array.__dlpack__(stream=-1, dl_device=(2, 0), copy=False))
