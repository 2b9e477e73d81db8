"""Programs that forget a wait are reported by both lines; those that wait are not."""

import re

import torch

import forgotten_waits
import public_races
from on_emulator import EmulatorCase, reports


_PROGRAMS = forgotten_waits.PROGRAMS + forgotten_waits.FURTHER + public_races.PROGRAMS


def _run(program, forgets):
    program(forgotten_waits.Program(forgets))
    torch.cuda.synchronize()
    return reports()


class Races(EmulatorCase):
    def test_of_each_forgotten_wait_are_reported_by_both_lines(self):
        for program in _PROGRAMS:
            with self.subTest(program.__name__):
                races = [line for line in _run(program, forgets=True) if "race" in line]
                self.assertTrue(races)
                places = re.findall(r"(?:forgotten_waits|public_races)\.py:\d+ in ", races[0])
                self.assertGreaterEqual(len(places), 2, races[0])

    def test_are_not_where_the_program_waits(self):
        for program in _PROGRAMS:
            with self.subTest(program.__name__):
                self.assertEqual(_run(program, forgets=False), [])
