"""The module in C, where it is built. `_scope.PlainScope` says what `Scope` does."""

from types import TracebackType
from typing import Any, Optional, TypeVar

from commpool import Pool

_Scope = TypeVar("_Scope", bound="Scope")

class Scope:
    pool: Pool
    delegate: Any
    def __init__(self, pool: Pool, **words: Any) -> None: ...
    def __enter__(self) -> Pool: ...
    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None: ...
    def again(self: _Scope) -> _Scope: ...
