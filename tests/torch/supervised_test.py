"""Behind a test that ends its process, or does not end at all, the others go on."""

import os
import sys
import threading
import unittest

import supervised


class Ways(unittest.TestCase):
    """What the process runs."""

    def passes(self):
        print("this is no answer")

    def fails(self):
        self.assertEqual(1, 2)

    def errs(self):
        raise KeyError("of the test")

    def skips(self):
        self.skipTest("there is no device")

    def fails_in_a_part(self):
        with self.subTest(part=1):
            self.fail("in the part")

    def dies(self):
        os._exit(3)

    def hangs(self):
        threading.Event().wait()


_NAMES = ("passes", "fails", "errs", "dies", "skips", "hangs", "fails_in_a_part", "passes")


class Supervised(unittest.TestCase):
    def test_tells_of_each_test(self):
        with open(os.devnull, "w", encoding="utf-8") as log:
            supervisor = supervised.Supervisor([sys.executable, __file__, "--serve"], log, 5)
            self.addCleanup(supervisor.end)
            self.assertEqual(supervisor.names, list(_NAMES))
            found = [supervisor.run(name) for name in supervisor.names]
        self.assertEqual([outcome for outcome, _ in found],
                         ["pass", "fail", "fail", "dies", "skip", "hangs", "fail", "pass"])
        self.assertEqual(found[2][1], "KeyError: 'of the test'")
        self.assertEqual(found[3][1], "exit code 3")
        self.assertEqual(found[4][1], "there is no device")

    def test_says_that_no_process_begins(self):
        supervisor = supervised.Supervisor([sys.executable, "-c", "pass"], None, 5)
        self.addCleanup(supervisor.end)
        self.assertIsNone(supervisor.names)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        supervised.serve(list(_NAMES), Ways)
    else:
        unittest.main()
