"""Objects that own something of the library's: a copy would be a second owner, and free it under the first."""

from __future__ import annotations

from typing import Any, NoReturn


class Owner:
    """It is neither copied nor pickled. TypeError is what Python raises for its own objects of this kind."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} belongs to this process and this object: it is neither copied nor pickled")
