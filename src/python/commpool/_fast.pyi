"""The module in C, where it is built: what programs call often. `scopes.PlainScope` says what `Scope` does."""

from types import TracebackType
from typing import Any, Optional, TypeVar

from .handles import Pointer, Stream
from .pool import Pool

_Scope = TypeVar("_Scope", bound="Scope")

class Scope:
    pool: Pool
    def __init__(self, pool: Pool, **words: Any) -> None: ...
    def __enter__(self) -> Pool: ...
    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None: ...
    def again(self: _Scope) -> _Scope: ...

class RoutedScope(Scope):
    """`torch._scope.PlainScope` says what it does."""

    delegate: Any

def record_stream(pointer: Pointer, stream: Stream) -> None: ...
def address() -> int: ...
