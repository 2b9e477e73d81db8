"""Pools that others' names for sleep make as they are asked for: of a key, which is a tag and how it is kept."""

from __future__ import annotations

import threading
from typing import Any, Callable, Hashable, Iterator, Optional

from commpool.errors import CommpoolError, OutOfMemory

from . import _scope
from ._pool import Pool


class Member:
    """One of them, and whether these names have put it to sleep. Any thread."""

    def __init__(self, name: str, device: int) -> None:
        """Makes the pool: no memory yet."""
        self.pool = Pool(name, device=device)
        self.asleep = False
        self._lock = threading.RLock()

    def sleep(self, **how: Any) -> None:
        """Nothing where it sleeps already. The program minds graphs, as it has to with the names' own library."""
        with self._lock:
            if not self.asleep:
                self.pool.sleep(graphs="no_collectives", **how)
                self.asleep = True

    def wake(self, before: Optional[Callable[[Pool], Any]] = None) -> None:
        """Nothing where it is awake. `before` is told the pool first, if it sleeps."""
        with self._lock:
            if self.asleep:
                if before is not None:
                    before(self.pool)
                self.pool.wake()
                self.asleep = False

    def serves(self) -> bool:
        """Whether it is awake. One that nobody uses is woken for that, if there is memory."""
        with self._lock:
            if self.asleep and self.pool.stats().allocated_blocks.current == 0:
                try:
                    self.wake()
                except OutOfMemory:
                    pass  # another pool may need less
            return not self.asleep


class TaggedPools(dict[Hashable, list[Member]]):
    """By key. While a key's pool sleeps what is new goes to another one, which sleeps with it from the next time on."""

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self._lock = threading.Lock()

    def awake(self, key: Hashable, name: str, device: int) -> Pool:
        """The key's pool that serves now, made where there is none."""
        with self._lock:
            for member in sorted(self.get(key, ()), key=lambda member: member.asleep):
                if member.serves():
                    return member.pool
            return self._add(key, name, device)

    def add(self, key: Hashable, name: str, device: int) -> Pool:
        """One more of the key."""
        with self._lock:
            return self._add(key, name, device)

    def _add(self, key: Hashable, name: str, device: int) -> Pool:
        member = Member(name, device)
        self.setdefault(key, []).append(member)
        return member.pool

    def scope(self, key: Hashable, name: str, device: int) -> Any:
        """Routes what this thread makes, and its backward(), to that pool."""
        return _scope.use_pool(self.awake(key, name, device))

    def each(self) -> Iterator[tuple[Any, Member]]:
        """All, with their keys."""
        with self._lock:
            all_of_them = [(key, member) for key, members in self.items() for member in members]
        yield from all_of_them


def sleep_all(sleepers: Iterator[Callable[[], Any]]) -> None:
    """Calls them all, and raises what the first one raised that failed."""
    first: Optional[CommpoolError] = None
    for sleep in sleepers:
        try:
            sleep()
        except CommpoolError as error:
            first = first or error
    if first is not None:
        raise first
