"""PyTorch's own allocator on the emulator does what PyTorch documents."""

import unittest

from allocator_behaviours import (Cache, Exhaustion, GraphPools, Pools,  # noqa: F401: the cases
                                  Snapshots, Statistics)

if __name__ == "__main__":
    unittest.main()
