"""What a recording costs a training's steps: a pool is the whole allocator, recorded and not, in turn; and not recorded
once more, whose ratio says what the method cannot tell apart.

The GPU's clock stands between the steps of a block, as in hardware_steps.py. A recording begins before the block's
first step, which is not counted, and ends after its last one.
usage: hardware_recording.py [MODEL...] [--record FILE] [--seconds N] [--tiny]      (default: all models)
  --seconds  that a model's rounds may take (45)
"""

import functools
import os
import sys
import tempfile

import torch

import commpool.torch as commpool

from hardware_measure import pin_to_quiet_cores, record, report
from hardware_models import MODELS, TINY_MODELS, Training
from hardware_steps import TINY, clocked, compared, milliseconds, rounds_of, step_ms, steps_of_a_block

GOAL = 1.01
WAYS = {"recorded": "none", "recorded with stacks": "python"}
# In the names of hardware_steps.py: what is compared stands between two blocks of the same.
CONTENDERS = ["native", *WAYS, "native again"]


class Contest:
    def __init__(self, name, folder):
        self.training, self.folder = Training(name), folder
        self.steps = steps_of_a_block(self.training)
        self.bytes = dict.fromkeys(WAYS, 0)
        self.blocks = 0

    def block(self, who, first):
        """Milliseconds of the steps that count."""
        self.blocks += 1
        directory = os.path.join(self.folder, str(self.blocks))
        recording = commpool.record(directory, stacks=WAYS[who]) if who in WAYS else None
        self.training.step(first)
        times = milliseconds(clocked(functools.partial(self.training.step, first + number)
                                     for number in range(self.steps)))
        if recording is not None:
            recording.end()
            self.bytes[who] = sum(entry.stat().st_size for entry in os.scandir(directory))
        return times


def measured(name, folder):
    contest = Contest(name, folder)
    rounds = rounds_of(CONTENDERS, WAYS, contest.block, contest.steps)
    found = {"recorded_bytes_of_a_block": contest.bytes, "step_ms": step_ms(rounds, CONTENDERS)}
    print(f"{name}: " + ", ".join(f"{who.replace('native', 'plain')} {of:.2f} ms a step"
                                  for who, of in found["step_ms"].items()), flush=True)
    for who in ("native again", *WAYS):
        found[who] = report(f"{name}: {who.replace('native', 'plain')} / plain", compared(rounds, who), GOAL,
                            widest=0.005)
    return found


def main():
    models = TINY_MODELS if TINY else MODELS
    pin_to_quiet_cores(min(4, os.cpu_count()))
    pool = commpool.Pool("whole", mode="expandable", device=0)
    commpool.install(default=pool)
    for name in [model for model in models if model in sys.argv] or models:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(name, folder)
        torch.cuda.empty_cache()
        record("tests/torch/hardware_recording.py", {name: found})


if __name__ == "__main__":
    main()
