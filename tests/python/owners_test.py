"""An object that owns something of the library stays the only owner, whatever a program does with it."""

import copy
import gc
import pickle
import unittest

import emulated
import commpool
from emulated import MIB


class Model:
    def __init__(self, pool):
        self.pool, self.layers = pool, [pool]


class Blocks(unittest.TestCase):
    def test_are_neither_copied_nor_pickled(self):
        pool = commpool.Pool()
        for owner in (pool.allocate(MIB), commpool.empty(MIB, pool=pool)):
            for make in (copy.copy, copy.deepcopy, pickle.dumps, lambda owner: pickle.dumps(owner, 0),
                         lambda owner: copy.deepcopy({"kept": [owner]})):
                self.assertRaisesRegex(TypeError, "^<commpool.* neither copied nor pickled$", make, owner)

    def test_are_freed_once(self):
        pool = commpool.Pool()
        kept = pool.allocate(MIB)
        try:
            copy.copy(kept)
        except TypeError:
            gc.collect()
        other = pool.allocate(MIB)
        self.assertNotEqual(other.pointer, kept.pointer)
        self.assertEqual(pool.stats().allocated_blocks.current, 2)


class Pools(unittest.TestCase):
    def test_stay_the_same_in_a_copied_model(self):
        pool = commpool.Pool("kept", reserve=MIB)
        for make in (copy.copy, copy.deepcopy):
            self.assertIs(make(pool), pool)
            made = make(Model(pool))
            self.assertIs(made.pool, pool)
            self.assertIs(made.layers[0], pool)
            del made
            gc.collect()
        self.assertGreaterEqual(pool.stats().reserved_bytes.current, MIB)

    def test_are_not_pickled(self):
        for pool in (commpool.Pool("kept"), commpool.Pool.default()):
            self.assertRaisesRegex(TypeError, "neither copied nor pickled", pickle.dumps, Model(pool))
