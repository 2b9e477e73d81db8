"""Scopes by ctypes alone, as without the module in C."""

import sys

sys.modules["commpool._fast"] = None  # makes an import of it fail

from scope_cases import *  # noqa: E402, F403: the cases


class TheModuleInC(emulated.Case):
    def test_is_not_used(self):
        from commpool import _library, scopes

        self.assertIsNone(_library.fast)
        self.assertIs(commpool.use_pool.__mro__[1], scopes.PlainScope)
