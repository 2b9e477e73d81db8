"""Turns streams, communicators, devices and pointers of other libraries into the numbers that the library takes."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import re
import sys
from typing import Any, Callable, Iterable, Optional, Protocol, Union

from . import _driver
from .errors import FailedPrecondition, InvalidArgument


class HasCudaStream(Protocol):
    """A stream of torch, CuPy, cuda.core, RMM, Warp or Numba."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version 0 of the protocol, and the stream's handle."""


Stream = Union[None, int, HasCudaStream]
# An ncclComm_t as an integer, or an object that has one. Adapters add other kinds (add_communicator_source).
Communicator = Any
# What an option is that the program does not give: None would hide that there is no process group yet.
NOT_GIVEN: Any = ...
# A CUDA ordinal, "cuda:1", or an object with `index` or `device_id`; "cuda" is the current one.
Device = Any
# An address, or an object that has one: a Buffer, an Array, a tensor.
Pointer = Any

CommunicatorSource = Callable[[Any, Optional[int]], Optional[int]]
_communicator_sources: list[CommunicatorSource] = []

_DEVICE = re.compile(r"cuda(?::(\d{1,10}))?")
_DEVICES = 2**31  # the device number is a C int
_POINTERS = 2**64
_AS_IT_IS = contextlib.nullcontext()  # each allocation passes here
_NO_STREAM = 8  # COMMPOOL_NO_STREAM: other libraries would pass the handle of such an array to the driver


def stream_handle(stream: Stream) -> int:
    """The handle of a stream; None is the legacy default stream, 0."""
    if stream is None:
        return 0
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        told = protocol() if callable(protocol) else protocol
        try:
            version, handle = told
        except (TypeError, ValueError):
            raise InvalidArgument(f"__cuda_stream__ of {stream!r} is {told!r}, and must be a pair: 0, and the stream's "
                                  "handle") from None
        if version != 0:
            raise InvalidArgument(f"__cuda_stream__ of {stream!r} is of version {version}, and 0 is the known one")
        stream = handle
    handle = _address(stream, "stream")
    if handle == _NO_STREAM:
        raise InvalidArgument("8 is no stream: COMMPOOL_NO_STREAM is for programs in C and C++")
    return handle


def _device_of(stream: Stream) -> Optional[int]:
    """The device that a stream of torch, CuPy or cuda.core says; None where it says none."""
    device = getattr(stream, "device", stream)
    number = getattr(device, "index", None) if device is not stream else None
    number = getattr(device, "device_id", None) if not isinstance(number, int) else number
    return number if isinstance(number, int) and number >= 0 else None


def place_of(stream: Stream, device: int) -> _driver.Place:
    """Where the handle of a stream means it; `device`: of a default stream that says none, where no context tells."""
    named = _device_of(stream)
    current = _driver.current_device() if named is None else named
    return _driver.Place.of(stream_handle(stream), device if current is None else current)


def place_on(stream: Stream, device: int) -> _driver.Place:
    """Where a call that names a device means the handle of a stream: a default stream that says none is the device's.

    Raises:
      InvalidArgument: it is the default stream of another device.
    """
    named = _device_of(stream)
    place = _driver.Place.of(stream_handle(stream), device)
    if named not in (None, device) and place.handle <= _driver.PER_THREAD_STREAM:
        raise InvalidArgument(f"a default stream of device {named} does not work on device {device}: give one that the "
                              "program made")
    return place


def meant(stream: Stream) -> contextlib.AbstractContextManager[Any]:
    """While a call passes the handle of this stream: a default stream's means the one of the current device."""
    named = _device_of(stream) if stream is not None and not isinstance(stream, int) else None
    if named is None or stream_handle(stream) > _driver.PER_THREAD_STREAM or named == _driver.current_device():
        return _AS_IT_IS
    return _driver.on_device(named)


def add_communicator_source(source: CommunicatorSource) -> None:
    """Lets commpool take more kinds of objects. `source(object, device)` returns an ncclComm_t, or None for other
    kinds.

    `device` is the pool's, or None if no pool is concerned. commpool asks the newest source first.
    """
    _communicator_sources.insert(0, source)


def _attribute_of_communicator(communicator: Any) -> Any:
    for name in ("_comm_ptr", "comm_ptr", "ptr"):  # torch's backend; torch's backend of 2.15; nccl4py's Communicator
        if hasattr(communicator, name):
            pointer = getattr(communicator, name)
            return pointer() if callable(pointer) else pointer
    return communicator


def communicator_handle(communicator: Communicator, device: Optional[int] = None) -> int:
    """The ncclComm_t of a communicator; 0 for None, which ranks pass that are not in the communicator."""
    if communicator is None or communicator is NOT_GIVEN:
        return 0
    if isinstance(communicator, int):
        return _address(communicator, "communicator")
    for source in _communicator_sources:
        found = source(communicator, device)
        if found is not None:
            return _made(found, communicator)
    return _made(_attribute_of_communicator(communicator), communicator)


def home_handle(communicator: Communicator, device: int) -> int:
    """The ncclComm_t of the home of a symmetric pool; 0 where the program asks for none.

    Raises:
      InvalidArgument: it is given, and is none.
    """
    if communicator is NOT_GIVEN:
        return 0
    handle = communicator_handle(communicator, device)
    if handle == 0:
        raise InvalidArgument(f"symmetric_across is {communicator!r}, which is no communicator: make the group first "
                              "(torch's WORLD is None before init_process_group), or leave symmetric_across out")
    return handle


def _made(handle: Any, communicator: Any) -> int:
    number = _address(handle, "communicator")
    if number == 0:
        raise FailedPrecondition(f"{communicator!r} has no NCCL communicator yet: make it at once (device_id= of "
                                 "init_process_group), or run one collective before")
    return number


def device_number(device: Device, option: str = "device") -> int:
    """The CUDA ordinal of a device; `option` names it in errors."""
    try:
        number = operator.index(_ordinal(device))
    except TypeError:
        number = _DEVICES
    if not -_DEVICES <= number < _DEVICES:
        raise InvalidArgument(f"{option} {device!r} is no CUDA device: write 1, \"cuda:1\", or \"cuda\" for the "
                              "current one")
    return number


def known_device(device: Device) -> int:
    """The CUDA ordinal of a device that is there, as far as an open driver knows: it opens none, so that a program may
    fork after it.

    Raises:
      InvalidArgument: there is none of that number.
    """
    number = device_number(device)
    if number < 0 or _driver.lacks_device(number):
        raise InvalidArgument(f"there is no device {number}")
    return number


def _ordinal(device: Device) -> Any:
    """The ordinal that a device object has, or the current device's. Returns the object itself if it is not a CUDA
    device."""
    if isinstance(device, str):
        match = _DEVICE.fullmatch(device)
        return int(match.group(1) or _current_device()) if match else device
    if getattr(device, "type", "cuda") == "cuda":  # in torch this is the kind of the device
        for name in ("index", "device_id"):
            told = getattr(device, name, "")
            if told is None or isinstance(told, int):
                return _current_device() if told is None else told
    return device


def _current_device() -> int:
    """torch's current device if torch is in use, else that of the driver's current context. Without both it is 0, as in
    CUDA."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return _driver.current_device() or 0


def device_array(devices: Union[Device, Iterable[Device]], option: str = "device") -> tuple[Any, int]:
    """The ordinals of one or several devices as a C array, and their number."""
    several = isinstance(devices, Iterable) and not isinstance(devices, str)
    numbers = [device_number(device, option) for device in (devices if several else [devices])]
    return (ctypes.c_int * len(numbers))(*numbers), len(numbers)


def handle_array(handles: Iterable[int]) -> Any:
    """The handles of pools as a C array."""
    numbers = list(handles)
    return (ctypes.c_uint64 * len(numbers))(*numbers)


def pointer_of(pointer: Pointer) -> int:
    """The address at which an object begins."""
    if isinstance(pointer, int):
        return _address(pointer, "pointer")
    if hasattr(pointer, "data_ptr"):  # a torch tensor
        return _address(pointer.data_ptr(), "pointer")
    if hasattr(pointer, "pointer"):  # a Buffer or an Array
        return _address(pointer.pointer, "pointer")
    interface = getattr(pointer, "__cuda_array_interface__", None)
    try:
        start = interface["data"][0] if interface else pointer
    except (TypeError, LookupError):
        raise InvalidArgument(f"__cuda_array_interface__ of {pointer!r} is {interface!r}, and must be a dict whose "
                              "\"data\" begins with the address") from None
    return _address(start, "pointer")


def _address(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{value!r} is no {what}") from None
    if isinstance(value, bool) or not 0 <= number < _POINTERS:
        raise InvalidArgument(f"{value!r} is no {what}")
    return number
