"""Scopes by the module in C."""

import emulated  # before commpool
from commpool import _library
from scope_cases import *  # noqa: F403: the cases


class TheModuleInC(emulated.Case):
    def test_is_used_and_calls_the_library_that_was_loaded(self):
        self.assertTrue(_library.fast.__file__.endswith("_fast.abi3.so"))
        self.assertEqual(commpool.use_pool.__mro__[1], _library.fast.Scope)
