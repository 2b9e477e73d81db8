"""torch's scopes by ctypes alone, as where the module in C is not there: the router's and autograd's cases."""

import sys
import unittest

sys.modules["commpool._fast"] = None  # an import of it fails

from autograd_test import *  # noqa: E402, F403: the cases
from router_test import *  # noqa: E402, F403
from routed import commpool  # noqa: E402


class TheModuleInC(unittest.TestCase):
    def test_is_not_used(self):
        from commpool.torch import _scope

        self.assertIs(commpool.use_pool.__mro__[1], _scope.PlainScope)


if __name__ == "__main__":
    unittest.main()
