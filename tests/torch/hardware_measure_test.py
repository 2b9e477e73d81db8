"""What timings make of rounds: a ratio that a few disturbed ones do not move, its interval, and a verdict."""

import json
import math
import random
import unittest

import hardware_measure as measure


def times(ratios):
    return {"native": [1000.0] * len(ratios), "ours": [1000.0 * of for of in ratios]}


class Ratios(unittest.TestCase):
    def test_are_the_middle_of_the_rounds(self):
        found = measure.ratio(times([1.0, 1.01, 1.02, 1.03, 1.04]), "ours", "native")
        self.assertAlmostEqual(found["ratio"], 1.02, places=4)
        self.assertEqual(found["rounds"], 5)

    def test_are_not_moved_by_rounds_in_which_something_else_ran(self):
        quiet = [1.005 + 0.0001 * (number % 5) for number in range(40)]
        disturbed = quiet[:34] + [3.0] * 3 + [0.3] * 3
        self.assertAlmostEqual(measure.ratio(times(disturbed), "ours", "native")["ratio"],
                               measure.ratio(times(quiet), "ours", "native")["ratio"], places=3)

    def test_lie_in_their_interval_as_often_as_it_says(self):
        dice, inside = random.Random(5), 0
        for _ in range(400):
            sample = [1.01 * dice.lognormvariate(0, 0.01) for _ in range(20)]
            found = measure.ratio(times(sample), "ours", "native")
            inside += abs(found["ratio"] - 1.01) <= found["half_width"]
        self.assertGreater(inside, 0.92 * 400)
        self.assertLess(inside, 0.99 * 400)

    def test_of_few_rounds_have_wide_intervals(self):
        few, many = (measure.ratio(times([1.0, 1.01, 1.02, 1.03] * number), "ours", "native") for number in (1, 10))
        self.assertGreater(few["half_width"], 3 * many["half_width"])


class Places(unittest.TestCase):
    """Of rounds that measure several things each."""

    def test_count_by_their_weights(self):
        rows = [[math.log(1.1) + step, math.log(0.9) + step] for step in (-0.001, 0.0, 0.001)]
        self.assertAlmostEqual(measure.middle_of(rows, [1.0, 0.0])["ratio"], 1.1, places=6)
        self.assertAlmostEqual(measure.middle_of(rows, [0.0, 1.0])["ratio"], 0.9, places=6)
        self.assertAlmostEqual(measure.middle_of(rows, [0.5, 0.5])["ratio"], math.sqrt(1.1 * 0.9), places=6)

    def test_are_trimmed_each_for_itself(self):
        rows = [[0.0, 0.01] for _ in range(20)]
        for number in range(4):
            rows[number][0] = rows[10 + number][1] = 1.0
        self.assertAlmostEqual(measure.middle_of(rows, [0.5, 0.5])["ratio"], math.exp(0.005), places=6)

    def test_lie_in_their_interval_though_a_round_is_disturbed_as_a_whole(self):
        dice, inside = random.Random(7), 0
        for _ in range(400):
            rows = [[0.01 + together + dice.gauss(0, 0.01) for _ in range(4)]
                    for together in (dice.gauss(0, 0.02) for _ in range(30))]
            found = measure.middle_of(rows, [0.25] * 4)
            inside += abs(found["ratio"] - math.exp(0.01)) <= found["half_width"]
        self.assertGreater(inside, 0.92 * 400)
        self.assertLess(inside, 0.99 * 400)


class NarrowRounds(unittest.TestCase):
    def test_end_when_the_interval_is_narrow(self):
        drift, seconds = iter(range(10**6)), {"ours": 0.01, "native": 0.02}
        steady = measure.until_narrow(lambda names: [seconds[name] * (1 + 1e-4 * next(drift)) for name in names],
                                      "ours", "native", seconds=1000, half_width=0.001)
        self.assertEqual(len(steady["ours"]), 12)
        self.assertAlmostEqual(measure.ratio(steady, "ours", "native")["ratio"], 0.5, places=6)  # drift cancels out

    def test_end_when_the_time_is_up(self):
        dice = random.Random(3)
        noisy = measure.until_narrow(lambda names: [dice.uniform(0.5, 1.5) for _ in names], "ours", "native",
                                     seconds=80, half_width=0.001)
        self.assertAlmostEqual(len(noisy["ours"]), 20, delta=3)
        self.assertGreater(measure.ratio(noisy, "ours", "native")["half_width"], 0.001)


class Verdicts(unittest.TestCase):
    def test_are_given_where_the_whole_interval_is_on_one_side(self):
        for ratio, half_width, said in [(1.0, 0.005, "passed"), (1.02, 0.005, "failed"), (1.01, 0.005, "undecided")]:
            self.assertEqual(measure.verdict({"ratio": ratio, "half_width": half_width}, 1.01), said)

    def test_are_none_where_the_interval_is_too_wide(self):
        found = {"ratio": 0.9, "half_width": 0.02}
        self.assertEqual((measure.verdict(found, 1.0), measure.verdict(found, 1.0, widest=0.01)),
                         ("passed", "undecided"))


class Lives(unittest.TestCase):
    def test_that_leak_a_descriptor_or_some_bytes_each_are_told(self):
        lives = [{"descriptors": 20 + life, "threads": 15 + life % 2, "host bytes": (1 << 29) + (life << 20),
                  "device bytes": (1 << 30) + (life % 4 << 20)} for life in range(40)]
        self.assertEqual(measure.grown(lives), ["descriptors", "host bytes"])

    def test_of_which_the_first_ones_warm_up_are_flat(self):
        self.assertEqual(measure.grown([{"threads": min(life, 5), "host bytes": min(life, 5) << 30}
                                        for life in range(40)]), [])

    def test_that_are_few_are_not_judged(self):
        self.assertEqual(measure.grown([{"threads": 1}] * 7), ["samples"])


class Rounds(unittest.TestCase):
    def test_turn_round(self):
        order = []
        contenders = {name: (lambda name=name: order.append(name) or len(order)) for name in "ABC"}
        found = measure.in_turn(contenders, 2)
        self.assertEqual("".join(order), "ABCCBA")
        self.assertEqual(json.dumps(found), '{"A": [1, 6], "B": [2, 5], "C": [3, 4]}')


if __name__ == "__main__":
    unittest.main()
