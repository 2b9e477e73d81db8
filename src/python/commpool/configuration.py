"""Which options hold, and who set them: a default, COMMPOOL_CONF, or code."""

from __future__ import annotations

from . import _abi
from ._abi import Setting as Setting
from ._library import library, listed, value_of
from .statistics import table


class Configuration(tuple[Setting, ...]):
    """Settings, which print as a table."""

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(f"{setting.pool}.{setting.key}" if setting.pool else setting.key, setting.value, setting.source)
                for setting in self]

    def __repr__(self) -> str:
        rows = self._rows()
        first, second = (max((len(row[column]) for row in rows), default=0) + 2 for column in (0, 1))
        return "\n".join(f"{key:{first}}{value:{second}}{source}" for key, value, source in rows)

    def _repr_html_(self) -> str:
        return table(("key", "value", "from"), self._rows())


def of(pool: int) -> Configuration:
    """The settings of the pool with a handle; 0: of pools that are not made yet."""
    return Configuration(value_of(Setting, each) for each in listed(_abi.CSetting, library.configuration, pool))


def config() -> Configuration:
    """The settings of pools that are not made yet: COMMPOOL_CONF and defaults. Opens no driver.

    Raises:
      InvalidArgument: COMMPOOL_CONF is wrong; the message lists the known keys.
    """
    return of(0)
