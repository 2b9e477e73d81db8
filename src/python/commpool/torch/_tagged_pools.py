"""Pools that others' names for sleep make as they are asked for: of a key, which is a tag and how it is kept."""

from __future__ import annotations

from typing import Any, Hashable, Iterator

from . import _scope
from ._pool import Pool


class Member:
    """One of them, and whether these names have put it to sleep."""

    def __init__(self, name: str, device: int) -> None:
        """Makes the pool: no memory yet."""
        self.pool = Pool(name, device=device)
        self.asleep = False

    def sleep(self, **how: Any) -> None:
        """Nothing where it sleeps already. The program minds graphs, as it has to with the names' own library."""
        if not self.asleep:
            self.pool.sleep(graphs="no_collectives", **how)
            self.asleep = True

    def wake(self) -> None:
        """Nothing where it is awake."""
        if self.asleep:
            self.pool.wake()
            self.asleep = False


class TaggedPools(dict[Hashable, list[Member]]):
    """By key. While a key's pool sleeps what is new goes to another one, which sleeps with it from the next time on."""

    def awake(self, key: Hashable, name: str, device: int) -> Pool:
        """The key's pool that serves now, made where there is none."""
        members = self.setdefault(key, [])
        for member in members:
            if not member.asleep:
                return member.pool
        members.append(Member(name, device))
        return members[-1].pool

    def scope(self, key: Hashable, name: str, device: int) -> Any:
        """Routes what this thread makes, and its backward(), to that pool."""
        return _scope.use_pool(self.awake(key, name, device))

    def each(self) -> Iterator[tuple[Any, Member]]:
        """All, with their keys."""
        for key, members in list(self.items()):
            for member in list(members):
                yield key, member
