"""Objects that own something of the library. A copy would be a second owner, and would free it too early."""

from __future__ import annotations

from typing import Any, NoReturn


class Owner:
    """Cannot be copied or pickled. It raises TypeError, as Python does for its own objects of this kind."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} belongs to this process and this object: it is neither copied nor pickled")
