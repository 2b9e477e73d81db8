"""torch's scopes by ctypes alone, as without the module in C: the cases of the router and of autograd."""

import sys
import unittest

sys.modules["commpool._fast"] = None  # makes an import of it fail

from autograd_test import *  # noqa: E402, F403: the cases
from router_test import *  # noqa: E402, F403
from routed import commpool  # noqa: E402


class TheModuleInC(unittest.TestCase):
    def test_is_not_used(self):
        from commpool.torch import _scope

        self.assertIs(commpool.use_pool.__mro__[1], _scope.PlainScope)
